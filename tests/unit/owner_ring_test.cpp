// ClientRing: what a client wrote becomes a command, or is refused.
#include "client_ring.h"
#include "owner_fixture.h"

namespace fluxon::owner {
namespace {

using shm::CommandKind;

// A client's file and the owner's end of it.
struct Ring {
  Ring() : pages(sizeof(shm::ClientFile)), ring(file()) {}
  shm::ClientFile& file() { return *reinterpret_cast<shm::ClientFile*>(pages.data()); }
  ClientRing::Next submit(CommandKind kind, uint32_t flags) {
    shm::CommandSlot& slot = file().commands[0];
    slot.request = {};
    slot.request.kind = static_cast<uint32_t>(kind);
    slot.request.flags = flags;
    slot.state = static_cast<uint32_t>(shm::CommandState::submitted);
    file().ring.entries[file().ring.tail % shm::kCommandSlots] = 0;
    file().ring.tail = file().ring.tail + 1;
    uint32_t index = 0;
    command = {};
    const ClientRing::Next next = ring.next(index, command);
    if (next == ClientRing::Next::command) ring.answer(index, {});
    return next;
  }
  Pages pages;
  ClientRing ring;
  Command command;
};

TEST_CASE("client ring: the flags of a put and of a get are what the command says") {
  Ring r;
  const PutMode mode{PutMode::OnExisting::reject, PutMode::OnInFlight::reject, PutMode::Home::here};
  for (const CommandKind kind : {CommandKind::putStart, CommandKind::putInline}) {
    CHECK(r.submit(kind, shm::flagsOf(mode, 3)) == ClientRing::Next::command);
    CHECK((r.command.put == mode));
    CHECK(r.command.replicas == 3);
    CHECK((r.command.get == GetMode()));
  }
  CHECK(r.submit(CommandKind::get, shm::kHold | shm::kPlacedHere | shm::kBringHere) == ClientRing::Next::command);
  CHECK((r.command.get == GetMode{.hold = true, .placedHere = true, .bringHere = true}));
  CHECK((r.command.put == PutMode()));
  CHECK(r.submit(CommandKind::get, shm::kLocalOnly) == ClientRing::Next::command);
  CHECK((r.command.get == GetMode{.localOnly = true}));
}

TEST_CASE("client ring: a flag that its kind of command does not have is answered `protocol`") {
  const auto refused = [](CommandKind kind, uint32_t flags) {
    Ring r;
    return r.submit(kind, flags) == ClientRing::Next::refused && r.file().commands[0].answer.code == static_cast<uint32_t>(Code::protocol);
  };
  CHECK(refused(CommandKind::get, shm::kRejectIfExists));
  CHECK(refused(CommandKind::get, 1u << shm::kReplicasShift));
  CHECK(refused(CommandKind::putStart, shm::kHold));
  CHECK(refused(CommandKind::putInline, 1u << 20));
  CHECK(refused(CommandKind::commit, shm::kRejectIfExists));
  CHECK(refused(CommandKind::stat, shm::kHold));
  CHECK(refused(static_cast<CommandKind>(99), shm::kHold));
}

}  // namespace
}  // namespace fluxon::owner
