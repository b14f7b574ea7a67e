/*
 * Marks packets "congestion experienced", as a congested router does (RFC 3168
 * 5).
 */
#include "tests/wire/mark.h"

#include "tests/bytes.h"
#include "tests/wire/model.h"

#define FIELD 3u
#define CE    3u

/* Updates IPv4's checksum for one changed word (RFC 1624, eqn. 3). */
static void mend_sum(uint8_t *ip, unsigned was, unsigned now)
{
	uint32_t sum = (~get16(ip + 10) & 0xffff) + (~was & 0xffff) + now;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	put16(ip + 10, ~sum & 0xffff);
}

static bool mark_ip4(uint8_t *ip)
{
	unsigned was = get16(ip);

	if ((ip[1] & FIELD) == 0 || (ip[1] & FIELD) == CE)
		return false;
	ip[1] |= CE;
	mend_sum(ip, was, get16(ip));
	return true;
}

/* The traffic class lies across two bytes. */
static bool mark_ip6(uint8_t *ip)
{
	unsigned field = ip[1] >> 4 & FIELD;

	if (field == 0 || field == CE)
		return false;
	ip[1] |= CE << 4;
	return true;
}

bool wire_mark(uint8_t *frame, unsigned len)
{
	uint8_t *ip = frame + WIRE_ETH_BYTES;

	if (len < WIRE_ETH_BYTES + 20)
		return false;
	switch (get16(frame + 12)) {
	case 0x0800:
		return mark_ip4(ip);
	case 0x86dd:
		return mark_ip6(ip);
	default:
		return false;
	}
}
