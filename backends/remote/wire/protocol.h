/*
 * backends/remote/wire/protocol.h - messages, limits and the opening of a connection.
 *
 * PROTOCOL.md is the text; this is the same in C.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/remote/wire/wire.h"

enum {
	PROTOCOL_VERSION = 6,

	FRAME_HEADER_BYTES = 16,
	FRAME_PAYLOAD_MAX_BYTES = 1 << 20,
	TRANSFER_MAX_BYTES = 256 << 10, /* file content in one READ reply or WRITE */
	LISTING_FIRST_BYTES =
		8 << 10, /* entries are sent when this much has gathered at first ... */
	LISTING_CHUNK_BYTES = 128 << 10,   /* ... and this much in the end */
	LISTING_PATHS_MAX_BYTES = 4 << 20, /* all paths in one frame, each in full with a NUL */
	INLINE_MAX_BYTES = 512 << 10,      /* file content in one entry of a scan */
	CREDIT_LISTING_BYTES = 4 << 20,    /* what a sender may send before the first CREDIT */
	CREDIT_OUTPUT_BYTES = 1 << 20,
	CREDIT_INPUT_BYTES = 256 << 10,
	OUTPUT_CHUNK_BYTES = 32 << 10,
	XATTR_MAX_BYTES = 64 << 10,
	ARGUMENTS_MAX = 65536, /* argv and environment of an exec, each */
	KNOWN_MAX = 1 << 16,   /* files that a search leaves out */
	GROUPS_MAX = 1024,

	CHANNELS_MAX = 4, /* connections of a session */
	HELLO_MAX_BYTES = 64 << 10,
	NOISE_MAX_BYTES = 8 << 20, /* skipped before a hello */
	MAGIC_BYTES = 8,
	NONCE_BYTES = 16,
	TOKEN_BYTES = 16,
};

/* Beside enum scan_flags: what a search looks for follows. */
enum { SCAN_HAS_TEXTS = 1 << 5, SCAN_PACKED = 1 << 7 };

enum frame_type {
	/* Of the connection: neither counted nor sent again. */
	FRAME_ACK = 1,
	FRAME_PING = 2,
	FRAME_PONG = 3,
	FRAME_BYE = 4,

	/* From here on counted: each arrives exactly once, whatever happens to the
	 * connection. */
	FRAME_FIRST_COUNTED = 8,
	FRAME_REPLY = 8,   /* to the request `id` */
	FRAME_DATA = 9,    /* more of the answer to `id`, before its REPLY; or what it writes */
	FRAME_CREDIT = 10, /* the receiver of the listing `id` took this many bytes */
	FRAME_CANCEL = 11, /* nobody waits for `id` any more */
	FRAME_CHANGE = 12, /* of the change feed */
	FRAME_OUTPUT = 13, /* of the process `id` */
	FRAME_EXIT = 14,   /* of the process `id`; the last one about it */
	FRAME_INPUT = 15,  /* for the process `id`; empty: end of file */
	FRAME_INPUT_CREDIT = 16,
	FRAME_KILL = 17, /* the process `id` is to be killed and forgotten */
	FRAME_UNWATCH = 18,
	FRAME_OUTPUT_CREDIT = 19,

	/* Requests: each is answered by one REPLY. */
	REQUEST_BELOW_FIRST = 31,
#define REQUEST(NAME, name, flags) REQUEST_##NAME,
#include "backends/remote/wire/requests.def"
#undef REQUEST
	REQUEST_END,
	REQUEST_FIRST = REQUEST_BELOW_FIRST + 1,
};

enum request_flags {
	REQUEST_IS_REPEATABLE = 1 << 0, /* only looks: sent again when its answer was lost */
	REQUEST_HAS_FACTS = 1 << 1,     /* facts of what it left behind follow a good answer */
	REQUEST_HAS_COUNT = 1 << 2,     /* a good answer may be more than 0 */
	REQUEST_IS_LISTING = 1 << 3,    /* DATA comes before the reply, as far as there is credit */
	REQUEST_IS_BULK = 1 << 4,       /* the reply may be large */
	REQUEST_WAITS = 1 << 5,         /* may wait for other requests: a thread of its own */
	REQUEST_TAKES_LONG = 1 << 6,    /* at the place itself, however good the link is */
	REQUEST_IS_QUEUED = 1 << 7,     /* a change that the client may go on without waiting for */
};

/* enum request_flags; 0 for what is no request. */
unsigned request_flags(unsigned type);

/* The most of a file that comes with a lock. */
enum { LOCK_INLINE_MAX_BYTES = 32 << 10 };

/* Flags of a SEEK request. */
enum { SEEK_CODE_DATA = 0, SEEK_CODE_HOLE = 1 };

/* In the result of OPEN, CREATE, CREATE_UNNAMED, PREPARE and NAME. */
enum {
	OPENED_INLINE = 1 << 0,           /* the start of the file follows */
	OPENED_WITH_LITTLE_ROOM = 1 << 1, /* struct facts has it */
	OPENED_BITS = (1 << 2) - 1,
};

enum frame_flags {
	FRAME_COMPRESSED = 1 << 0,
	FRAME_HAS_MORE = 1 << 1, /* a piece: the rest follows in frames of the same type and id */
	FRAME_FLAGS = (1 << 2) - 1,
};

struct frame_header {
	uint32_t size; /* of the payload */
	uint8_t type;  /* enum frame_type */
	uint8_t flags; /* enum frame_flags */
	uint32_t id;
	uint32_t ack; /* counted frames received so far, modulo 2^32 */
};

void frame_header_encode(const struct frame_header *header, uint8_t out[FRAME_HEADER_BYTES]);

/* 0, or -EPROTO for a header that no peer of this version sends. */
int frame_header_decode(const uint8_t in[FRAME_HEADER_BYTES], struct frame_header *ret_header);

/* Whether what a side sends is compressed: in HELLO. */
enum compression {
	COMPRESSION_NONE,
	COMPRESSION_AS_NEEDED, /* while the link is what keeps it waiting */
	COMPRESSION_ALWAYS,
	COMPRESSIONS,
};

/* ---- The opening ----------------------------------------------------------- */

struct hello {
	uint8_t nonce[NONCE_BYTES]; /* the client's; the welcome repeats it */
	uint64_t version;
	uint8_t session[TOKEN_BYTES]; /* all zero: a new one, please */
	uint8_t token[TOKEN_BYTES];   /* proves that the session is the sender's */
	uint64_t received;            /* counted frames that the sender has received */
	uint64_t linger_seconds;      /* how long the session outlives its connection */
	bool ends;                    /* that session is to end: a new one, please */
	uint64_t channel;             /* 0: the session's own connection; else one beside it */
	enum compression compression; /* of what the helper sends */
	const char *root;             /* absolute directory */
};

struct welcome {
	uint8_t nonce[NONCE_BYTES];
	uint64_t version;
	int error;          /* 0, or why there is no session: -errno ... */
	const char *reason; /* ... in words */
	bool resumed;
	uint64_t channels; /* connections that the session takes */
	uint8_t session[TOKEN_BYTES];
	uint8_t token[TOKEN_BYTES];
	uint64_t received;
	uint64_t capabilities; /* enum workspace_capabilities */
	uint32_t owner_uid, owner_gid;
	const char *identity; /* tells this machine or container from others, and from itself when
			       * started anew; "": not known.  To encode, NULL is "" */
	bool takes_compressed;
};

/* Appends magic, nonce, length and body. */
void hello_encode(struct wire_writer *w, const struct hello *hello);
void welcome_encode(struct wire_writer *w, const struct welcome *welcome);

/* Decode the body; its text points into it.  -EPROTO. */
int hello_decode(const uint8_t nonce[NONCE_BYTES], const uint8_t *body, size_t size,
	struct hello *ret_hello);
int welcome_decode(const uint8_t nonce[NONCE_BYTES], const uint8_t *body, size_t size,
	struct welcome *ret_welcome);

/* Reads from `fd`, skipping noise, up to and including a hello (`nonce` NULL: any; else
 * the one with this nonce) and no byte further.  Kept in `*noise`: the first bytes of
 * what was skipped, for the error message.  0; -EPROTO (only noise came), -EPIPE (end of
 * file), -ETIMEDOUT, -errno. */
int hello_receive(int fd, bool from_helper, const uint8_t *nonce, int timeout_ms,
	uint8_t ret_nonce[NONCE_BYTES], struct buffer *ret_body, struct buffer *noise);
