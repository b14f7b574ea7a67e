/*
 * A scripted DNS server: the peer of UDP tests (datagrams.h), at port 53. It
 * reads the stack's queries and answers as the test says.
 *
 * c-ares reads the clock by itself. This file's clock_gettime() gives it the
 * tests' clock.
 */
#pragma once

#include <coronet/net_resolve.h>

#include "tests/net/datagrams.h"

#define DNS_A	  1
#define DNS_CNAME 5
#define DNS_SOA	  6
#define DNS_AAAA  28

#define DNS_TRUNCATED 0x0200 /* flags of a response */
#define DNS_SERVFAIL  2
#define DNS_NXDOMAIN  3
#define DNS_REFUSED   5

struct query {
	struct datagram d; /* as it was sent */
	unsigned id, type;
	char name[256];
	unsigned question_len; /* bytes of the question */
};

struct response {
	uint8_t data[70000];
	unsigned len;
};

/* cmocka's setup and teardown: a stack, resolv.conf and hosts in a folder. */
int names_setup(void **state);
int names_teardown(void **state);
/* Writes these files; NULL: removes it. */
void write_resolv_conf(const char *text);
void write_hosts(const char *text);

/* Removes an address of the stack, "10.0.0.1/24" or "fd00::1/64". */
void names_remove_addr(const char *text);

/* Runs the stack until it has sent a query; false if it sends none. */
bool query_next(struct query *out);
/* Reads a query, as sent in a datagram or over TCP. */
void query_read(struct query *out, const uint8_t *data, unsigned len);
/* Begins a response with the query's question; code: the RCODE, and flags. */
void response_begin(struct response *r, const struct query *q, unsigned code);
/* Adds a record of the question's name, to the answers. */
void response_add(struct response *r, unsigned type, uint32_t ttl_s,
		  const void *data, unsigned len);
void response_add4(struct response *r, uint32_t ttl_s, const char *address);
void response_add6(struct response *r, uint32_t ttl_s, const char *address);
/* Adds a SOA to the authority section. */
void response_add_soa(struct response *r, uint32_t ttl_s, uint32_t minimum_s);
/* Sends it to where the query came from; two rounds. */
void response_send(const struct query *q, const struct response *r);

/* A lookup in a coroutine. */
struct lookup {
	const char *name;
	struct net_resolve_opts opts;
	struct net_addr addrs[2 * 16];
	unsigned ttl_s;
	int result;
	bool ended;
};
void lookup_begin(struct lookup *l, const char *name, uint8_t family);
void lookup_begin_for(struct lookup *l, const char *name, uint8_t family,
		      unsigned timeout_ms);
/* Fails the test unless it has ended with this result. */
void lookup_check(const struct lookup *l, int expected);
/* The same, with the text of an address, its port 0. */
void lookup_check_addr(const struct lookup *l, unsigned i, const char *address);
