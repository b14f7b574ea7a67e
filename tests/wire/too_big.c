/* Forges a router's "too big" answers (RFC 1191 4, RFC 4443 3.2). */
#include "tests/wire/too_big.h"

#include <stdbool.h>
#include <string.h>

#define ETH	    14u
#define IP4	    20u
#define IP6	    40u
#define ICMP	    8u
#define QUOTE_MAX   (WIRE_TOO_BIG_MAX - ETH - IP6 - ICMP)
#define DONT_CUT    0x4000 /* DF */
#define OFFSET	    0x1fff
#define PROTO_ICMP  1
#define PROTO_ICMP6 58
#define TTL	    64

static unsigned get_u16(const uint8_t *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

static void put_u16(uint8_t *at, unsigned value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

/* Adds words to a sum (RFC 1071), which may already have others. */
static uint32_t add_words(uint32_t sum, const uint8_t *data, unsigned len)
{
	for (unsigned i = 0; i + 1 < len; i += 2)
		sum += get_u16(data + i);
	if (len % 2)
		sum += (uint32_t)data[len - 1] << 8;
	return sum;
}

static unsigned checksum(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum & 0xffff;
}

static bool is_error4(const uint8_t *ip, unsigned header, unsigned len)
{
	static const uint8_t errors[] = {3, 4, 5, 11, 12}; /* RFC 1122 3.2.2 */

	return ip[9] == PROTO_ICMP &&
	       (len <= header || memchr(errors, ip[header], sizeof(errors)));
}

static bool wants_answer4(const uint8_t *ip, unsigned len)
{
	unsigned header = (ip[0] & 15) * 4;

	return header >= IP4 && header <= len && (get_u16(ip + 6) & DONT_CUT) &&
	       !(get_u16(ip + 6) & OFFSET) && ip[16] < 224 &&
	       !is_error4(ip, header, len);
}

static unsigned answer4(const uint8_t *ip, unsigned quote, unsigned mtu,
			uint8_t *out)
{
	uint8_t *icmp = out + IP4;

	out[0] = 0x45;
	put_u16(out + 2, IP4 + ICMP + quote);
	out[8] = TTL;
	out[9] = PROTO_ICMP;
	memcpy(out + 12, ip + 16, 4);
	memcpy(out + 16, ip + 12, 4);
	put_u16(out + 10, checksum(add_words(0, out, IP4)));
	icmp[0] = 3; /* destination unreachable */
	icmp[1] = 4; /* fragmentation needed and DF set */
	put_u16(icmp + 6, mtu);
	memcpy(icmp + ICMP, ip, quote);
	put_u16(icmp + 2, checksum(add_words(0, icmp, ICMP + quote)));
	return IP4 + ICMP + quote;
}

static unsigned answer6(const uint8_t *ip, unsigned quote, unsigned mtu,
			uint8_t *out)
{
	uint8_t *icmp = out + IP6;
	uint32_t sum;

	out[0] = 0x60;
	put_u16(out + 4, ICMP + quote);
	out[6] = PROTO_ICMP6;
	out[7] = TTL;
	memcpy(out + 8, ip + 24, 16);
	memcpy(out + 24, ip + 8, 16);
	icmp[0] = 2; /* packet too big */
	put_u16(icmp + 6, mtu);
	memcpy(icmp + ICMP, ip, quote);
	/* The pseudo-header: addresses, length, next header. */
	sum = add_words(ICMP + quote + PROTO_ICMP6, out + 8, 32);
	put_u16(icmp + 2, checksum(add_words(sum, icmp, ICMP + quote)));
	return IP6 + ICMP + quote;
}

static bool wants_answer6(const uint8_t *ip, unsigned len)
{
	bool is_error = ip[6] == PROTO_ICMP6 && (len <= IP6 || ip[IP6] < 128);

	return !is_error && ip[24] != 0xff;
}

unsigned wire_too_big(const uint8_t *frame, unsigned len, unsigned mtu,
		      uint8_t *out)
{
	const uint8_t *ip = frame + ETH;
	unsigned quote;

	if (len < ETH + IP4)
		return 0;
	len -= ETH;
	quote = len < QUOTE_MAX ? len : QUOTE_MAX;
	memset(out, 0, WIRE_TOO_BIG_MAX);
	memcpy(out, frame + 6, 6);
	memcpy(out + 6, frame, 6);
	memcpy(out + 12, frame + 12, 2);
	if (get_u16(frame + 12) == 0x0800 && wants_answer4(ip, len))
		return ETH + answer4(ip, quote, mtu, out + ETH);
	if (get_u16(frame + 12) == 0x86dd && len >= IP6 &&
	    wants_answer6(ip, len))
		return ETH + answer6(ip, quote, mtu, out + ETH);
	return 0;
}
