/*
 * Queries of DNS (RFC 1035, RFC 6891): reads messages of clients.
 *
 * The bytes come from the wire: every length is checked before it is used, and
 * a message has at most DNS_RECORDS_MAX records besides its question. Names in
 * wire format are sequences of labels, each after its length; the empty label
 * at the end counts in the length of the name, but not as a label.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DNS_HEADER_BYTES 12
#define DNS_NAME_MAX	 255
#define DNS_LABEL_MAX	 63
#define DNS_LABELS_MAX	 127  /* of a name */
#define DNS_RECORDS_MAX	 16   /* of a query */
#define DNS_OPT_BYTES	 11   /* of our OPT record, which has no options */
#define DNS_UDP_PLAIN	 512  /* largest answer to a client without EDNS */
#define DNS_UDP_EDNS	 1232 /* largest answer, and the size we announce */

/* The header's second word. */
#define DNS_QR	   0x8000u
#define DNS_OPCODE 0x7800u
#define DNS_AA	   0x0400u
#define DNS_TC	   0x0200u
#define DNS_RD	   0x0100u
#define DNS_CD	   0x0010u
#define DNS_RCODE  0x000fu

enum dns_rcode {
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5,
	DNS_BADVERS = 16, /* RFC 6891; beyond the header's four bits */
	DNS_RCODES
};

enum dns_type {
	DNS_A = 1,
	DNS_NS = 2,
	DNS_CNAME = 5,
	DNS_SOA = 6,
	DNS_PTR = 12,
	DNS_MX = 15,
	DNS_AAAA = 28,
	DNS_SRV = 33,
	DNS_DNAME = 39,
	DNS_OPT = 41,
	DNS_DS = 43,
	DNS_RRSIG = 46,
	DNS_NSEC = 47,
	DNS_TKEY = 249,
	DNS_TSIG = 250,
	DNS_IXFR = 251,
	DNS_AXFR = 252,
	DNS_ANY = 255
};

#define DNS_IN 1 /* the class */

/* The hash of the root's name. */
#define DNS_HASH_ROOT 0x811c9dc5u

/*
 * The hash of a name, from its parent's hash and its first label: the label's
 * length and its bytes, in lower case.
 */
static inline uint32_t dns_hash_label(uint32_t parent, const uint8_t *label)
{
	uint32_t hash = parent;

	for (unsigned i = 0; i <= label[0]; i++)
		hash = (hash ^ label[i]) * 0x01000193u;
	return hash ^ hash >> 15;
}

static inline uint16_t dns_get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static inline void dns_put16(uint8_t *at, unsigned value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static inline uint8_t dns_lower(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? (uint8_t)(c | 0x20) : c;
}

/* A name, split into its labels. */
struct dns_name {
	uint8_t n_labels;
	uint8_t len; /* in wire format */
	uint8_t label_at[DNS_LABELS_MAX +
			 1];		   /* offsets; the last is the root */
	uint32_t hash[DNS_LABELS_MAX + 1]; /* of the name from that label on */
	uint8_t wire[DNS_NAME_MAX];	   /* in lower case */
};

/*
 * Reads an uncompressed name from at most len bytes. Returns its length, or 0
 * if there is none; *out is undefined then.
 */
size_t dns_name_read(const uint8_t *wire, size_t len, struct dns_name *out);

struct dns_query {
	uint16_t flags; /* the header's second word */
	uint16_t type, class;
	uint16_t question_bytes; /* after the header; 0: there is none */
	bool edns;		 /* it has an OPT record */
	bool dnssec_ok;		 /* the DO bit of OPT */
	uint16_t udp_size;	 /* of OPT, at least DNS_UDP_PLAIN */
	struct dns_name name;	 /* if question_bytes is not 0 */
};

/*
 * Reads a query. Returns an enum dns_rcode: DNS_NOERROR if the zones must
 * answer it, else the error to answer with; or -1 if there must be no answer:
 * the message is shorter than a header, or a response. *out is valid except
 * with -1.
 */
int dns_query_read(const uint8_t *msg, size_t len, struct dns_query *out);
