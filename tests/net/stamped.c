/* A peer with timestamps (RFC 7323). */
#include "tests/net/stamped.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/bytes.h"

#define NEAR_WRAP 0xffffff00u

struct peer stamped;
uint32_t stamp;

static uint32_t heard; /* the stack's last timestamp, which is echoed */

static const uint8_t *find_stamp(const struct segment *s)
{
	const uint8_t *at = s->options, *end = at + s->options_len;

	for (; at < end && *at; at += *at == 1 ? 1 : at[1])
		if (*at == 8)
			return at;
	return NULL;
}

bool has_stamp(const struct segment *s)
{
	return find_stamp(s) != NULL;
}

uint32_t stamp_of(const struct segment *s)
{
	assert_true(has_stamp(s));
	return get32(find_stamp(s) + 2);
}

uint32_t echo_of(const struct segment *s)
{
	assert_true(has_stamp(s));
	return get32(find_stamp(s) + 6);
}

static void send_stamped(struct segment s, uint8_t *options, uint32_t value)
{
	memcpy(options, "\1\1\10\12", 4);
	put32(options + 4, value);
	put32(options + 8, heard);
	s.options_len += STAMP_BYTES;
	peer_send_raw(&s);
}

static struct segment segment_at(uint32_t seq, uint8_t flags, const char *data)
{
	return (struct segment){.src = stamped.port,
				.dst = stamped.stack_port,
				.seq = seq,
				.ack = flags & PEER_ACK ? stamped.rcv : 0,
				.flags = flags,
				.wnd = stamped.wnd,
				.options = (const uint8_t *)"",
				.data = (const uint8_t *)data,
				.len = (unsigned)strlen(data)};
}

void stamped_send_at(uint32_t seq, uint8_t flags, const char *data,
		     uint32_t value)
{
	struct segment s = segment_at(seq, flags, data);
	uint8_t options[STAMP_BYTES];

	s.options = options;
	send_stamped(s, options, value);
}

void bare_send_at(uint32_t seq, uint8_t flags, const char *data)
{
	struct segment s = segment_at(seq, flags, data);

	peer_send_raw(&s);
}

void stamped_send(uint8_t flags, const char *data)
{
	stamped_send_at(stamped.snd, flags, data, stamp);
	stamped.snd += (uint32_t)strlen(data) + ((flags & PEER_FIN) != 0);
}

void stamped_syn(uint8_t flags, bool has)
{
	uint8_t options[8 + STAMP_BYTES] = {2, 4, 1460 >> 8, 1460 & 255,
					    1, 1, 4,	     2};
	struct segment s = segment_at(stamped.snd - 1, flags, "");

	s.options = options;
	s.options_len = 8;
	if (has)
		send_stamped(s, options + 8, stamp);
	else
		peer_send_raw(&s);
}

void stamped_connect(void)
{
	struct segment s;

	stamped = (struct peer){.port = 1000,
				.stack_port = 7,
				.snd = NEAR_WRAP + 1,
				.wnd = 65535};
	heard = 0;
	stamped_syn(PEER_SYN, true);
	s = expect_stamped(PEER_SYN | PEER_ACK, stamp);
	stamped.rcv = s.seq + 1;
	stamped_send(PEER_ACK, "");
	run_rounds(2);
}

struct segment expect_stamped(uint8_t flags, uint32_t echo)
{
	struct segment s;

	expect(&s, flags, ANY, ANY, ANY);
	assert_int_equal(echo_of(&s), echo);
	heard = stamp_of(&s);
	return s;
}
