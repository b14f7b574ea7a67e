/*
 * Reads queries: the header, one question, and the OPT record.
 */
#include "apps/dns/query.h"

/* What is left to be read of a message. */
struct reader {
	const uint8_t *at;
	size_t left;
};

static void hash_suffixes(struct dns_name *name)
{
	uint32_t hash = DNS_HASH_ROOT;

	name->hash[name->n_labels] = hash;
	for (unsigned i = name->n_labels; i-- > 0;) {
		hash = dns_hash_label(hash, name->wire + name->label_at[i]);
		name->hash[i] = hash;
	}
}

size_t dns_name_read(const uint8_t *wire, size_t len, struct dns_name *out)
{
	size_t at = 0;
	unsigned n = 0;

	if (len > DNS_NAME_MAX)
		len = DNS_NAME_MAX;
	while (at < len && wire[at] != 0) {
		size_t end = at + 1 + wire[at];

		/* Also refuses the two bits of a compressed name. */
		if (wire[at] > DNS_LABEL_MAX || end >= len)
			return 0;
		out->label_at[n++] = (uint8_t)at;
		for (out->wire[at] = wire[at], at++; at < end; at++)
			out->wire[at] = dns_lower(wire[at]);
	}
	if (at >= len)
		return 0;
	out->label_at[n] = (uint8_t)at;
	out->wire[at++] = 0;
	out->n_labels = (uint8_t)n;
	out->len = (uint8_t)at;
	hash_suffixes(out);
	return at;
}

static bool advance_reader(struct reader *r, size_t n)
{
	if (r->left < n)
		return false;
	r->at += n;
	r->left -= n;
	return true;
}

/* Skips a name, which may end in a compression pointer. */
static bool skip_name(struct reader *r)
{
	for (unsigned i = 0; i <= DNS_LABELS_MAX; i++) {
		uint8_t label;

		if (r->left == 0)
			return false;
		label = r->at[0];
		if ((label & 0xc0) == 0xc0)
			return advance_reader(r, 2);
		if (label > DNS_LABEL_MAX || !advance_reader(r, 1u + label))
			return false;
		if (label == 0)
			return true;
	}
	return false;
}

/* Takes the OPT record at r (RFC 6891 6.1.2): size, version and DO bit. */
static int take_opt(const uint8_t *fields, struct dns_query *out)
{
	uint16_t size = dns_get16(fields + 2);

	out->edns = true;
	out->udp_size = size < DNS_UDP_PLAIN ? DNS_UDP_PLAIN : size;
	out->dnssec_ok = fields[6] & 0x80;
	return fields[5] == 0 ? DNS_NOERROR : DNS_BADVERS;
}

/*
 * Reads the records after the question, of which only OPT means something, and
 * it only once, with the root as its name, in the additional section.
 */
static int read_records(struct reader *r, unsigned n, unsigned n_additional,
			struct dns_query *out)
{
	int result = DNS_NOERROR;

	for (unsigned i = 0; i < n; i++) {
		bool is_root = r->left > 0 && r->at[0] == 0;
		const uint8_t *fields;

		if (!skip_name(r))
			return DNS_FORMERR;
		fields = r->at;
		if (!advance_reader(r, 10) ||
		    !advance_reader(r, dns_get16(fields + 8)))
			return DNS_FORMERR;
		if (dns_get16(fields) != DNS_OPT)
			continue;
		if (out->edns || !is_root || i + n_additional < n)
			return DNS_FORMERR;
		result = take_opt(fields, out);
	}
	return r->left == 0 ? result : DNS_FORMERR;
}

static int read_question(struct reader *r, struct dns_query *out)
{
	size_t len = dns_name_read(r->at, r->left, &out->name);

	if (len == 0 || r->left - len < 4)
		return DNS_FORMERR;
	out->type = dns_get16(r->at + len);
	out->class = dns_get16(r->at + len + 2);
	out->question_bytes = (uint16_t)(len + 4);
	advance_reader(r, len + 4);
	return DNS_NOERROR;
}

/* Returns the error of a question that no zone can answer, or DNS_NOERROR. */
static int check_question(const struct dns_query *q)
{
	if (q->type == DNS_OPT)
		return DNS_FORMERR;
	if (q->type == DNS_AXFR || q->type == DNS_IXFR || q->class != DNS_IN)
		return DNS_REFUSED;
	return DNS_NOERROR;
}

int dns_query_read(const uint8_t *msg, size_t len, struct dns_query *out)
{
	struct reader r = {msg, len};
	unsigned n, n_additional;
	int result;

	out->edns = false;
	out->dnssec_ok = false;
	out->question_bytes = 0;
	out->udp_size = DNS_UDP_PLAIN;
	if (!advance_reader(&r, DNS_HEADER_BYTES))
		return -1;
	out->flags = dns_get16(msg + 2);
	if (out->flags & DNS_QR)
		return -1;
	if (out->flags & DNS_OPCODE)
		return DNS_NOTIMP;
	n_additional = dns_get16(msg + 10);
	n = dns_get16(msg + 6) + dns_get16(msg + 8) + n_additional;
	if (dns_get16(msg + 4) != 1 || n > DNS_RECORDS_MAX)
		return DNS_FORMERR;
	result = read_question(&r, out);
	if (result == DNS_NOERROR)
		result = read_records(&r, n, n_additional, out);
	if (result == DNS_NOERROR)
		result = check_question(out);
	return result;
}
