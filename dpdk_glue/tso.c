/*
 * Joins the headers of consecutive TCP segments into those of a TSO frame.
 */
#include "dpdk_glue/tso.h"

#include <string.h>

#include "dpdk_glue/bytes.h"
#include "dpdk_glue/glue_csum.h"

#define TCP_HEADER 20u
#define PROTO_TCP  6

enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16, URG = 32, CWR = 128 };

/* Where fields lie in their headers. */
enum { IP4_LEN = 2, IP4_ID = 4, IP4_SUM = 10, IP4_ADDRS = 12 };
enum { IP6_LEN = 4, IP6_ADDRS = 8, IP6_HEADER = 40 };
enum { TCP_SEQ = 4, TCP_ACKNO = 8, TCP_OFF = 12, TCP_FLAGS = 13, TCP_WND = 14 };
enum { TCP_SUM = 16, TCP_URGENT = 18 };

static unsigned header_bytes(const uint8_t *tcp)
{
	return (tcp[TCP_OFF] >> 4) * 4u;
}

bool glue_tso_begin(struct glue_tso *tso, uint8_t *headers, uint16_t l3_off,
		    uint16_t l4_off, bool ip6, unsigned len)
{
	const uint8_t *tcp = headers + l4_off;
	unsigned payload_off = l4_off + header_bytes(tcp);

	tso->headers = NULL;
	if (payload_off >= len ||
	    (tcp[TCP_FLAGS] & (SYN | RST | URG | CWR | ACK)) != ACK)
		return false;
	*tso = (struct glue_tso){
		.headers = headers,
		.l3_off = l3_off,
		.l4_off = l4_off,
		.payload_off = (uint16_t)payload_off,
		.mss = (uint16_t)(len - payload_off),
		.next_seq = glue_get32(tcp + TCP_SEQ) + len - payload_off,
		.payload = len - payload_off,
		.segs = 1,
		.ip6 = ip6,
		.ended = tcp[TCP_FLAGS] & FIN,
	};
	return true;
}

/* Compares IP headers but for length, the packet's number and the checksum. */
static bool same_ip(const struct glue_tso *tso, const uint8_t *ip)
{
	const uint8_t *first = tso->headers + tso->l3_off;
	unsigned bytes = tso->l4_off - tso->l3_off;

	if (tso->ip6)
		return memcmp(first, ip, IP6_LEN) == 0 &&
		       memcmp(first + IP6_LEN + 2, ip + IP6_LEN + 2,
			      bytes - IP6_LEN - 2) == 0;
	return memcmp(first, ip, IP4_LEN) == 0 &&
	       memcmp(first + IP4_ID + 2, ip + IP4_ID + 2,
		      IP4_SUM - IP4_ID - 2) == 0 &&
	       memcmp(first + IP4_ADDRS, ip + IP4_ADDRS, bytes - IP4_ADDRS) ==
		       0;
}

/* Compares TCP headers but for sequence number, FIN, PSH and the checksum. */
static bool same_tcp(const struct glue_tso *tso, const uint8_t *tcp)
{
	const uint8_t *first = tso->headers + tso->l4_off;
	unsigned bytes = (unsigned)(tso->payload_off - tso->l4_off);
	uint8_t differ = first[TCP_FLAGS] ^ tcp[TCP_FLAGS];

	return memcmp(first, tcp, TCP_SEQ) == 0 &&
	       memcmp(first + TCP_ACKNO, tcp + TCP_ACKNO,
		      TCP_FLAGS - TCP_ACKNO) == 0 &&
	       (differ & ~(FIN | PSH)) == 0 &&
	       memcmp(first + TCP_WND, tcp + TCP_WND, 2) == 0 &&
	       memcmp(first + TCP_URGENT, tcp + TCP_URGENT,
		      bytes - TCP_URGENT) == 0;
}

bool glue_tso_add(struct glue_tso *tso, const uint8_t *headers, uint16_t l3_off,
		  uint16_t l4_off, unsigned len)
{
	const uint8_t *tcp = headers + l4_off;
	unsigned payload;

	if (!tso->headers || tso->ended || l3_off != tso->l3_off ||
	    l4_off != tso->l4_off || len <= tso->payload_off)
		return false;
	payload = len - tso->payload_off;
	if (payload > tso->mss ||
	    tso->payload_off - tso->l3_off + tso->payload + payload >
		    GLUE_TSO_BYTES ||
	    glue_get32(tcp + TCP_SEQ) != tso->next_seq ||
	    memcmp(tso->headers, headers, l3_off) != 0 ||
	    !same_ip(tso, headers + l3_off) || !same_tcp(tso, tcp))
		return false;
	tso->headers[l4_off + TCP_FLAGS] |= tcp[TCP_FLAGS] & (FIN | PSH);
	tso->ended = payload < tso->mss || (tcp[TCP_FLAGS] & FIN);
	tso->next_seq += payload;
	tso->payload += payload;
	tso->segs++;
	return true;
}

void glue_tso_end(struct glue_tso *tso)
{
	uint8_t *ip = tso->headers + tso->l3_off;
	uint8_t *tcp = tso->headers + tso->l4_off;
	unsigned len = tso->payload_off - tso->l3_off + tso->payload;
	uint16_t sum;

	if (tso->ip6) {
		glue_put16(ip + IP6_LEN, len - IP6_HEADER);
		sum = glue_sum_fold(
			glue_sum_pseudo(ip + IP6_ADDRS, 16, PROTO_TCP, 0));
	} else {
		glue_put16(ip + IP4_LEN, len);
		memset(ip + IP4_SUM, 0, 2);
		sum = glue_sum_fold(
			glue_sum_pseudo(ip + IP4_ADDRS, 4, PROTO_TCP, 0));
	}
	memcpy(tcp + TCP_SUM, &sum, 2);
}
