/*
 * Writes answers: header, question, a copy of what was laid out when the zone
 * was loaded, and EDNS's record (RFC 6891).
 */
#include "apps/dns/answer.h"

#include <string.h>

struct writer {
	uint8_t *out;
	size_t len, room;
	uint16_t flags;
	uint16_t counts[4];
};

/* Returns how long the answer may be. */
static size_t room_for(const struct dns_query *q, enum dns_carriage carriage,
		       size_t room)
{
	if (carriage != DNS_OVER_TCP && room > DNS_UDP_EDNS)
		room = DNS_UDP_EDNS;
	if (carriage != DNS_OVER_TCP && room > q->udp_size)
		room = q->udp_size;
	return q->edns ? room - DNS_OPT_BYTES : room;
}

/* Makes pointers right for a question with a longer name than the base's. */
static void shift_pointers(uint8_t *body, const struct zone_answer *answer,
			   size_t len, unsigned delta)
{
	for (unsigned i = 0; i < answer->n_fixups; i++) {
		uint8_t *at = body + answer->fixups[i];

		if (answer->fixups[i] >= len)
			break;
		dns_put16(at, dns_get16(at) + delta);
	}
}

/* Appends the records of an answer, if there is room for those it needs. */
static void put_answer(struct writer *w, const struct dns_query *q,
		       const struct zone_answer *answer, bool truncate)
{
	size_t left = w->room - w->len, len = answer->len;
	uint16_t additional = answer->counts[2];

	if (len > left) {
		len = answer->needed_len;
		additional = answer->needed_additional;
	}
	w->flags |= answer->flags;
	if (truncate || len > left) {
		w->flags |= DNS_TC;
		return;
	}
	memcpy(w->out + w->len, answer->body, len);
	if (q->name.len != answer->base_len)
		shift_pointers(w->out + w->len, answer, len,
			       (unsigned)(q->name.len - answer->base_len));
	w->len += len;
	w->counts[1] = answer->counts[0];
	w->counts[2] = answer->counts[1];
	w->counts[3] = additional;
}

static void put_opt(struct writer *w, const struct dns_query *q, unsigned rcode)
{
	uint8_t *at = w->out + w->len;

	memset(at, 0, DNS_OPT_BYTES);
	dns_put16(at + 1, DNS_OPT);
	dns_put16(at + 3, DNS_UDP_EDNS);
	at[5] = (uint8_t)(rcode >> 4);
	at[7] = q->dnssec_ok ? 0x80 : 0; /* RFC 3225 3 */
	w->len += DNS_OPT_BYTES;
	w->counts[3]++;
}

static void put_header(const struct writer *w, const uint8_t *msg)
{
	memcpy(w->out, msg, 2);
	dns_put16(w->out + 2, w->flags);
	for (unsigned i = 0; i < 4; i++)
		dns_put16(w->out + 4 + 2 * i, w->counts[i]);
}

size_t dns_answer(const struct zones *zones, const uint8_t *msg, size_t len,
		  enum dns_carriage carriage, uint8_t *out, size_t room,
		  struct dns_outcome *outcome)
{
	const struct zone_answer *answer = NULL;
	struct writer w = {.out = out, .len = DNS_HEADER_BYTES};
	struct dns_query q;
	int rcode = dns_query_read(msg, len, &q);

	if (rcode < 0)
		return 0;
	w.room = room_for(&q, carriage, room);
	w.flags = (uint16_t)(DNS_QR | (q.flags & (DNS_OPCODE | DNS_RD)));
	w.counts[0] = q.question_bytes > 0;
	memcpy(out + w.len, msg + w.len, q.question_bytes);
	w.len += q.question_bytes;
	if (rcode == DNS_NOERROR) {
		answer = zones_find(zones, &q);
		if (!answer)
			rcode = DNS_REFUSED;
	}
	if (answer) {
		put_answer(&w, &q, answer, carriage == DNS_TRUNCATED_UDP);
		rcode = answer->flags & DNS_RCODE;
	}
	w.flags |= (uint16_t)rcode & DNS_RCODE;
	if (q.edns)
		put_opt(&w, &q, (unsigned)rcode);
	put_header(&w, msg);
	*outcome =
		(struct dns_outcome){(enum dns_rcode)rcode, w.flags & DNS_TC};
	return w.len;
}
