/*
 * A backend as in --to: its name, its address and its parameters.
 *
 * [NAME=]HOST:PORT[,KEY=VALUE...], as in web1=10.9.0.2:80,weight=3,backup.
 * Plain data without pointers, copied freely.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "apps/common/host.h"

#define BACKEND_NAME_MAX 64  /* bytes, NUL included */
#define BACKEND_SNI_MAX	 512 /* all server names of a backend */
#define BACKEND_TEXT_MAX 128 /* what a health check sends and expects */
#define BACKEND_WEIGHT	 256 /* the largest */

/*
 * The state that an operator sets: accepts new clients; keeps only its present
 * ones; is out of use.
 */
enum backend_state { BACKEND_READY, BACKEND_DRAIN, BACKEND_DOWN };

enum backend_tls {
	BACKEND_TLS_OFF,
	BACKEND_TLS_VERIFY,
	BACKEND_TLS_INSECURE, /* any certificate will do */
	BACKEND_TLS_KINDS
};

enum backend_check {
	BACKEND_CHECK_DEFAULT, /* TCP, or UDP if all listeners are of UDP */
	BACKEND_CHECK_TCP,     /* the connection is made */
	BACKEND_CHECK_HTTP,    /* GET `path` is answered 2xx or 3xx */
	BACKEND_CHECK_EXPECT,  /* `expect` comes within the first KiB */
	BACKEND_CHECK_UDP,     /* ICMP refuses no datagram; one with `expect`,
				  unless empty, is the answer */
	BACKEND_CHECK_DNS,     /* a query for the root's servers is answered */
	BACKEND_CHECK_NONE     /* always up */
};

struct backend_spec {
	char name[BACKEND_NAME_MAX];
	char host[HOST_BYTES];	 /* an address without brackets, a name */
	bool by_name;		 /* `host` is a name to be resolved */
	struct opt_endpoint end; /* unless by_name, the port alone */
	uint16_t port;
	unsigned weight;  /* 0 to BACKEND_WEIGHT; 0: no new sessions */
	unsigned maxconn; /* sessions at a time; 0: no bound */
	bool backup;	  /* used if no other is available */
	enum backend_state state;
	enum backend_check check;
	enum backend_tls tls;
	char tls_name[HOST_BYTES];     /* asked for and verified; "": `host` */
	char path[BACKEND_TEXT_MAX];   /* of BACKEND_CHECK_HTTP */
	char send[BACKEND_TEXT_MAX];   /* bytes, before `expect` */
	char expect[BACKEND_TEXT_MAX]; /* bytes without NUL */
	char sni[BACKEND_SNI_MAX];     /* server names, separated by '|' */
};

/* Bytes of "[HOST]:PORT". */
#define BACKEND_AUTHORITY_MAX (HOST_BYTES + 9)

/*
 * Writes the Host field of a request to a backend (RFC 9110 7.2): brackets
 * around an IPv6 address, without its zone, and the port unless it is HTTP's,
 * or with tls= that of HTTPS.
 */
void backend_spec_authority(const struct backend_spec *spec, unsigned port,
			    char out[BACKEND_AUTHORITY_MAX]);

/*
 * Parses a backend. Returns 0, or -EINVAL with error->expected; *out is
 * complete only with 0.
 */
int backend_spec_parse(const char *text, struct backend_spec *out,
		       struct opt_error *error);

/* "ready", "drain" or "down"; the parser returns -EINVAL for another word. */
const char *backend_state_name(enum backend_state state);
int backend_state_parse(const char *text, enum backend_state *out);

/*
 * How well a server name, in lower case, matches the backend's names; 0: not at
 * all. Larger is better: an exact match, or the longest "*." suffix.
 */
unsigned backend_spec_serves(const struct backend_spec *spec, const char *name);
