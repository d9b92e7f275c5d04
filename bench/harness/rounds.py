"""What many rounds say, and the verdict."""
import json


def median(values):
    return sorted(values)[len(values) // 2]


def take_turns(rounds, *sides):
    """What each side returned in each round; a round before the first warms up."""
    got = [[] for _ in sides]
    for turn in range(-1, rounds):
        for i in [*range(len(sides))][turn % len(sides) :] + [*range(len(sides))][: turn % len(sides)]:
            got[i].append(sides[i]())
    return [each[1:] for each in got]


def median_ratio(ours, theirs):
    return median([a / b for a, b in zip(ours, theirs)])


def verdict(bench, value, unit, ratio, against, target, ok, digits=3):
    """The last line of a benchmark."""
    print(
        json.dumps(
            {
                "bench": bench,
                "value": round(value, digits) if digits else round(value),
                "unit": unit,
                "ratio": round(ratio, max(digits, 3)),
                "against": against,
                "target": target,
                "ok": ok,
            }
        )
    )
