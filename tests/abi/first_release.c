/* A program of the first release: it sees the headers of that release alone (0.1/fluxon), and runs with any later library. It calls every
 * function, with every struct full of what it must not touch behind it. Usage: first_release CLUSTER */
#include <fluxon/fluxon.h>
#include <stdio.h>
#include <string.h>

/* What a library of a later release must leave alone: it does not belong to the struct that this program knows. */
#define GUARDED(type, name)                \
  struct {                                 \
    type it;                               \
    unsigned char guard[64];               \
  } name;                                  \
  memset(&name, 0xA5, sizeof name);        \
  memset(&name.it, 0, sizeof name.it);     \
  name.it.size = sizeof name.it

static int untouched(const unsigned char* guard) {
  for (int i = 0; i < 64; ++i) {
    if (guard[i] != 0xA5) return 0;
  }
  return 1;
}

#define CHECK(condition)                                                                       \
  do {                                                                                         \
    if (!(condition)) return printf("%s (last error: %s)\n", #condition, fluxon_last_error()), 1; \
  } while (0)

static int listed(void* context, const fluxon_listed* entry) {
  *(uint64_t*)context += entry->size >= sizeof *entry && entry->key_bytes == 3 && memcmp(entry->key, "abi", 3) == 0 ? entry->length : 1000;
  return 1;
}

int main(int argc, char** argv) {
  GUARDED(fluxon_connect_options, connect);
  GUARDED(fluxon_call_options, call);
  GUARDED(fluxon_put_options, put);
  GUARDED(fluxon_put_result, result);
  GUARDED(fluxon_holder, holder);
  GUARDED(fluxon_grant, grant);
  GUARDED(fluxon_stat, stat);
  fluxon_client* client = NULL;
  uint64_t number = 0, lease = 0;

  connect.it.cluster = argc > 1 ? argv[1] : NULL;
  call.it.timeout_ms = put.it.timeout_ms = connect.it.timeout_ms = 20000;
  CHECK(fluxon_connect(&connect.it, &client) == FLUXON_OK);
  CHECK(fluxon_node(client)[0] != 0);

  put.it.reject_if_exists = 1;
  CHECK(fluxon_put(client, "abi", 3, "value", 5, &put.it, &result.it) == FLUXON_OK && result.it.put_id != 0);
  CHECK(fluxon_put(client, "abi", 3, "value", 5, &put.it, &result.it) == FLUXON_EXISTS);
  CHECK(strcmp(fluxon_code_name(FLUXON_EXISTS), "exists") == 0 && fluxon_sentence(FLUXON_EXISTS)[0] != 0);
  CHECK(fluxon_get(client, "abi", 3, &call.it, &holder.it) == FLUXON_OK);
  CHECK(holder.it.length == 5 && memcmp(holder.it.data, "value", 5) == 0 && holder.it.source == FLUXON_SOURCE_LOCAL);
  CHECK(holder.it.put_id == result.it.put_id || result.it.put_id == 0);
  fluxon_release(&holder.it);
  CHECK(holder.it.data == NULL && holder.it.size == sizeof holder.it);

  put.it.reject_if_exists = 0;
  CHECK(fluxon_put_start(client, "abi", 3, 4, &put.it, &grant.it) == FLUXON_OK && grant.it.length == 4);
  memcpy(grant.it.data, "next", 4);
  CHECK(fluxon_commit(&grant.it, &call.it, &result.it) == FLUXON_OK && grant.it.data == NULL);
  CHECK(fluxon_put_start(client, "abi", 3, 4, &put.it, &grant.it) == FLUXON_OK);
  fluxon_abort(&grant.it);

  CHECK(fluxon_exists(client, "abi", 3, &call.it) == FLUXON_OK);
  CHECK(fluxon_stat_key(client, "abi", 3, &call.it, &stat.it) == FLUXON_OK && stat.it.length == 4 && strlen(stat.it.nodes) > 0);
  CHECK(fluxon_count_prefix(client, "ab", 2, &call.it, &number) == FLUXON_OK && number == 1);
  number = 0;
  CHECK(fluxon_list(client, "ab", 2, NULL, 0, 0, &call.it, listed, &number) == FLUXON_OK && number == 4);
  CHECK(fluxon_lease_grant(client, 60000, &call.it, &lease) == FLUXON_OK && lease != 0);
  CHECK(fluxon_lease_keep_alive(client, lease, &call.it) == FLUXON_OK);
  CHECK(fluxon_lease_revoke(client, lease, &call.it) == FLUXON_OK);
  CHECK(fluxon_remove(client, "abi", 3, &call.it) == FLUXON_OK);
  CHECK(fluxon_get(client, "abi", 3, &call.it, &holder.it) == FLUXON_MISS);

  /* What was not initialized is refused, and changes nothing. */
  call.it.size = 0;
  CHECK(fluxon_exists(client, "abi", 3, &call.it) == FLUXON_INVALID_ARGUMENT);
  holder.it.size = (size_t)-1;
  CHECK(fluxon_get(client, "abi", 3, NULL, &holder.it) == FLUXON_INVALID_ARGUMENT);
  fluxon_close(client);

  CHECK(untouched(connect.guard) && untouched(call.guard) && untouched(put.guard) && untouched(result.guard));
  CHECK(untouched(holder.guard) && untouched(grant.guard) && untouched(stat.guard));
  puts("runs");
  return 0;
}
