/* Fluxon: the C interface of a cache client. See fluxon(3).
 *
 * A client belongs to one process and talks to the owner of one node of its host. Any number of threads may use it at once.
 * Every call has a deadline: `timeout_ms` of its options, 0 meaning FLUXON_DEFAULT_TIMEOUT_MS. Calls return a fluxon_code; the
 * detail of the last call of this thread that did not return FLUXON_OK is fluxon_last_error(). After fork() the client belongs
 * to the parent alone: in the child every call returns FLUXON_FORKED and releasing does nothing.
 *
 * Structs of options and of results begin with `size`, which the program sets: FLUXON_INIT(type) does, and clears the rest. It tells
 * the library which members the program knows, so a program runs with every later release without being built again. A size that is
 * less than that of the first release, or a member that is set and that the library does not know, is INVALID_ARGUMENT.
 */
#ifndef FLUXON_FLUXON_H
#define FLUXON_FLUXON_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FLUXON_API __attribute__((visibility("default")))

typedef enum fluxon_code {
#define FLUXON_RESULT(name, cname, value, kind, retry, sysexit, sentence) FLUXON_##cname = value,
#include <fluxon/errors.def>
#undef FLUXON_RESULT
} fluxon_code;

/* An initializer: fluxon_holder holder = FLUXON_INIT(fluxon_holder); */
#ifdef __cplusplus
}
template <class T>
inline T fluxonSized() {
  T all{};
  all.size = sizeof(T);
  return all;
}
#define FLUXON_INIT(type) fluxonSized<type>()
extern "C" {
#else
#define FLUXON_INIT(type) \
  { .size = sizeof(type) }
#endif

#define FLUXON_DEFAULT_TIMEOUT_MS 10000u
#define FLUXON_MAX_KEY_BYTES 4096u

/* "no such key": the sentence of a code. */
FLUXON_API const char* fluxon_sentence(fluxon_code code);
/* "miss": the name of a code. */
FLUXON_API const char* fluxon_code_name(fluxon_code code);
/* What was wrong, for people, with the value and what is accepted; valid until this thread's next call. */
FLUXON_API const char* fluxon_last_error(void);

typedef struct fluxon_client fluxon_client;

typedef struct fluxon_connect_options {
  size_t size;          /* of this struct in bytes, here and below */
  const char* cluster;  /* NULL: "default" */
  const char* node;     /* NULL: the only node of this host; an error if there are several */
  const char* shm_root; /* NULL: $FLUXON_SHM_ROOT, else /dev/shm/fluxon-<uid> */
  const char* name;     /* what the client is called in `fluxonctl pins`; NULL: the program's name */
  uint32_t timeout_ms;
  uint32_t prefault; /* 1: map all pages of the segment now (blocks; later hits never fault) */
} fluxon_connect_options;

/* Attaches to the owner: one message. `options` may be NULL. Errors: INVALID_ARGUMENT, UNAVAILABLE (no such owner), DENIED,
 * TOO_MANY (clients), TIMED_OUT, SYSTEM. */
FLUXON_API fluxon_code fluxon_connect(const fluxon_connect_options* options, fluxon_client** client);
/* Ends the client: no new calls. Holders stay readable until they are released, grants may still be committed or aborted; the owner
 * keeps what they need until then. NULL is allowed. */
FLUXON_API void fluxon_close(fluxon_client* client);
/* Name of the node. */
FLUXON_API const char* fluxon_node(const fluxon_client* client);

typedef enum fluxon_source {
  FLUXON_SOURCE_LOCAL = 1,     /* memory of the client's own node */
  FLUXON_SOURCE_NEIGHBOUR = 2, /* memory of another node of this host, in place */
  FLUXON_SOURCE_REMOTE = 3,    /* brought from memory of another host for this get, and now in memory of the client's own node */
  FLUXON_SOURCE_SSD = 4,       /* brought from an SSD of this host for this get, and now in memory of its node */
  FLUXON_SOURCE_REMOTE_SSD = 5 /* brought from an SSD of another host for this get, and now in memory of the client's own node */
} fluxon_source;

/* The right to read a value. `data` stays valid and unchanged until release, whatever happens to the key. */
typedef struct fluxon_holder {
  size_t size;
  const void* data; /* 64-byte aligned; 4096-byte aligned from 4096 bytes up. Not NULL for an empty value. */
  uint64_t length;  /* bytes */
  uint64_t put_id;  /* version */
  uint32_t source;  /* fluxon_source */
  uint32_t kind;    /* private */
  void* owner;      /* private */
  uint64_t handle;  /* private */
} fluxon_holder;

typedef struct fluxon_call_options {
  size_t size;
  uint32_t timeout_ms;
  uint32_t reserved; /* 0 */
} fluxon_call_options;

/* Gets the latest completed put of a key. A local hit is a few hundred nanoseconds, without a message and without blocking;
 * otherwise one or two messages, blocking, and for a value on another host its copy to here. MISS; INVALID_KEY, UNAVAILABLE (the owner
 * has no serving lease, or the one with the value cannot be reached), TIMED_OUT, TOO_MANY, TOO_LARGE, NO_SPACE, FORKED. `options` may
 * be NULL here and below. */
FLUXON_API fluxon_code fluxon_get(fluxon_client* client, const void* key, size_t key_bytes, const fluxon_call_options* options,
                                  fluxon_holder* holder);
/* Sends no message and does not block. Clears the holder; a cleared one is allowed. */
FLUXON_API void fluxon_release(fluxon_holder* holder);

typedef struct fluxon_put_options {
  size_t size;
  uint32_t timeout_ms;
  uint32_t reject_if_exists;    /* 1: EXISTS when the key has a value */
  uint32_t reject_if_in_flight; /* 1: IN_FLIGHT when another put of the key has begun and not ended */
  uint32_t replicas;            /* how many nodes shall have the value at the return, as far as they have room: 0 (is 1) to 255 */
  uint64_t lease;               /* 0, or a key lease: the value is kept while it lives, and deleted with it */
  const char* source_node;      /* NULL, or a node of this host in whose memory the value is filled on its way to where it shall lie */
} fluxon_put_options;

typedef struct fluxon_put_result {
  size_t size;
  uint64_t put_id;   /* version */
  uint32_t replicas; /* nodes that have the value; fewer than the option asked for: no others had room, or could be reached */
  uint32_t reserved; /* 0 */
} fluxon_put_result;

/* Puts a copy of `length` bytes. On OK the value is what gets return from now on. When it had to wait for space it has waited
 * up to the cluster's put_wait_ms or the deadline. `result` may be NULL. Errors: EXISTS, IN_FLIGHT, INVALID_KEY, TOO_LARGE, NO_SPACE
 * (detail: wanted, free, read, leased, retired, reserved), UNAVAILABLE, TIMED_OUT, OUTCOME_UNKNOWN (the put may or may not
 * have happened), TERM_CHANGED, NO_LEASE, TOO_MANY, FORKED. */
FLUXON_API fluxon_code fluxon_put(fluxon_client* client, const void* key, size_t key_bytes, const void* data, uint64_t length,
                                  const fluxon_put_options* options, fluxon_put_result* result);

/* The right to fill the place of a value. */
typedef struct fluxon_grant {
  size_t size;
  void* data; /* writable, `length` bytes, aligned like a holder's */
  uint64_t length;
  void* owner;     /* private */
  uint64_t handle; /* private */
} fluxon_grant;

/* Begins a put of `length` bytes without a copy: fill grant->data, then commit or abort. Errors as fluxon_put. */
FLUXON_API fluxon_code fluxon_put_start(fluxon_client* client, const void* key, size_t key_bytes, uint64_t length,
                                        const fluxon_put_options* options, fluxon_grant* grant);
/* Publishes; consumes the grant whatever it returns. */
FLUXON_API fluxon_code fluxon_commit(fluxon_grant* grant, const fluxon_call_options* options, fluxon_put_result* result);
/* Gives up; consumes the grant. */
FLUXON_API void fluxon_abort(fluxon_grant* grant);

/* OK or MISS. */
FLUXON_API fluxon_code fluxon_exists(fluxon_client* client, const void* key, size_t key_bytes, const fluxon_call_options* options);

typedef struct fluxon_stat {
  size_t size;
  uint64_t put_id;
  uint64_t length;  /* bytes */
  uint64_t lease;   /* 0: none */
  char nodes[1024]; /* names of the nodes with a replica in memory, one a line */
} fluxon_stat;
FLUXON_API fluxon_code fluxon_stat_key(fluxon_client* client, const void* key, size_t key_bytes, const fluxon_call_options* options,
                                       fluxon_stat* stat);

/* Deletes a key: OK, MISS, or an error; on OUTCOME_UNKNOWN it may or may not have happened. */
FLUXON_API fluxon_code fluxon_remove(fluxon_client* client, const void* key, size_t key_bytes, const fluxon_call_options* options);

/* Number of keys that begin with `prefix` (may be empty). */
FLUXON_API fluxon_code fluxon_count_prefix(fluxon_client* client, const void* prefix, size_t prefix_bytes,
                                           const fluxon_call_options* options, uint64_t* count);

typedef struct fluxon_listed {
  size_t size;     /* as the library knows it: members beyond it are not there */
  const void* key; /* valid during the callback */
  size_t key_bytes;
  uint64_t length; /* bytes of the value */
  uint64_t put_id;
} fluxon_listed;
/* Called for each key of a listing; returns 0 to stop. */
typedef int (*fluxon_list_callback)(void* context, const fluxon_listed* listed);
/* Lists up to `limit` keys (0: all) that begin with `prefix` and come after `after` in byte order. */
FLUXON_API fluxon_code fluxon_list(fluxon_client* client, const void* prefix, size_t prefix_bytes, const void* after, size_t after_bytes,
                                   uint64_t limit, const fluxon_call_options* options, fluxon_list_callback callback, void* context);

/* Key leases. A lease that is not kept alive for its time to live ends, and its keys are deleted. */
FLUXON_API fluxon_code fluxon_lease_grant(fluxon_client* client, uint64_t ttl_ms, const fluxon_call_options* options, uint64_t* lease);
FLUXON_API fluxon_code fluxon_lease_keep_alive(fluxon_client* client, uint64_t lease, const fluxon_call_options* options);
FLUXON_API fluxon_code fluxon_lease_revoke(fluxon_client* client, uint64_t lease, const fluxon_call_options* options);

#ifdef __cplusplus
}
#endif
#endif
