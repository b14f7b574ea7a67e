/* Messages of IGMP and MLD, and sockets that join groups. */
#include "tests/net/groups.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "dpdk_glue/glue_csum.h"
#include "netstack/udp/udp.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/frames.h"

const struct net_addr group4 = {
	.family = 4, .prefix_len = 32, .port = 53, .ip = {239, 1, 2, 3}};
const struct net_addr group6 = {.family = 6,
				.prefix_len = 128,
				.port = 53,
				.ip = {0xff, 0x12, [15] = 9}};
const struct net_addr all_hosts = {
	.family = 4, .prefix_len = 32, .ip = {224, 0, 0, 1}};
const struct net_addr all_nodes = {
	.family = 6, .prefix_len = 128, .ip = {0xff, 2, [15] = 1}};
const struct net_addr router6 = {
	.family = 6, .prefix_len = 128, .ip = {0xfe, 0x80, [15] = 2}};

int group_setup(void **state)
{
	ended = 0;
	return udp_setup(state);
}

int group_teardown(void **state)
{
	int err = peer_teardown(state);

	assert_int_equal(net_udps.n_groups[0], 0);
	return err;
}

/* ---- sockets ---- */

struct net_udp *group_socket(const struct net_udp_opts *opts)
{
	struct net_addr any = {.port = 53};
	struct net_udp *opened = NULL;

	assert_int_equal(net_udp_open(stack, &any, opts, &opened), 0);
	return opened;
}

void group_join(struct net_udp *udp, struct net_addr group)
{
	assert_int_equal(net_udp_join(udp, &group, NULL, NULL), 0);
}

bool group_receives(struct net_udp *udp, const char *text)
{
	struct net_datagram one;
	char buf[64];
	long n;

	if (!(net_udp_ready(udp, NET_READABLE) & NET_READABLE))
		return false;
	n = net_udp_recv(udp, buf, sizeof(buf), &one);
	assert_int_equal(n, strlen(text));
	assert_memory_equal(buf, text, (size_t)n);
	return true;
}

void group_say(struct net_addr from, struct net_addr to, const char *text)
{
	struct datagram d = {.from = from,
			     .to = to,
			     .to_group = true,
			     .len = (unsigned)strlen(text)};

	memcpy(d.data, text, d.len);
	assert_true(datagram_send(&d));
	run_rounds(1);
}

/* ---- messages of IGMP and MLD ---- */

static unsigned put_message4(uint8_t *ip, const struct message *m)
{
	uint8_t *igmp = ip + 24;
	uint16_t sum;

	ip[0] = 0x46;
	put16(ip + 2, 32);
	ip[8] = 1;
	ip[9] = 2;
	memcpy(ip + 12, m->from.ip, 4);
	memcpy(ip + 16, m->to.ip, 4);
	memcpy(ip + 20, "\224\4\0\0", 4);
	sum = (uint16_t)~glue_sum_fold(glue_sum_add(0, ip, 24));
	memcpy(ip + 10, &sum, 2);
	igmp[0] = (uint8_t)m->type;
	igmp[1] = (uint8_t)m->max_response;
	memcpy(igmp + 4, m->group.ip, 4);
	sum = (uint16_t)~glue_sum_fold(glue_sum_add(0, igmp, 8));
	memcpy(igmp + 2, &sum, 2);
	return 32;
}

static unsigned put_message6(uint8_t *ip, const struct message *m)
{
	uint8_t *mld = ip + 48;
	uint16_t sum;

	ip[0] = 0x60;
	put16(ip + 4, 32);
	ip[7] = 1;
	memcpy(ip + 8, m->from.ip, 16);
	memcpy(ip + 24, m->to.ip, 16);
	memcpy(ip + 40, "\72\0\5\2\0\0\1\0", 8);
	mld[0] = (uint8_t)m->type;
	put16(mld + 4, m->max_response);
	memcpy(mld + 8, m->group.ip, 16);
	sum = (uint16_t)~glue_sum_fold(
		glue_sum_add(glue_sum_pseudo(ip + 8, 16, 58, 24), mld, 24));
	memcpy(mld + 2, &sum, 2);
	return 72;
}

void message_queue(const struct message *m)
{
	uint8_t frame[128] = {0};
	bool v6 = m->to.family == 6;
	unsigned len;

	frame_ethernet(frame, v6 ? 0x86dd : 0x0800);
	frame[0] |= 1;
	len = v6 ? put_message6(frame + 14, m) : put_message4(frame + 14, m);
	assert_true(fake_receive_wire(frame, 14 + len));
}

void message_send(const struct message *m)
{
	message_queue(m);
	run_rounds(1);
}

void message_query4(struct net_addr from, unsigned max_response)
{
	message_send(&(struct message){.type = QUERY,
				       .from = from,
				       .to = all_hosts,
				       .max_response = max_response});
}

void message_query6(struct net_addr from, unsigned max_response)
{
	message_send(&(struct message){.type = QUERY6,
				       .from = from,
				       .to = all_nodes,
				       .max_response = max_response});
}

unsigned message_read(const uint8_t *frame, unsigned len, struct message *out)
{
	const uint8_t *ip = frame + 14;

	*out = (struct message){0};
	if (ip[0] == 0x46 && ip[9] == 2) {
		assert_true(len >= 14 + 32);
		assert_int_equal(ip[8], 1);
		assert_memory_equal(ip + 12, udp_us4.ip, 4);
		assert_memory_equal(ip + 20, "\224\4\0\0", 4);
		assert_int_equal(glue_sum_fold(glue_sum_add(0, ip + 24, 8)),
				 0xffff);
		assert_memory_equal(frame, "\1\0\136", 3);
		memcpy(out->to.ip, ip + 16, 4);
		memcpy(out->group.ip, ip + 28, 4);
		return out->type = ip[24];
	}
	if (ip[0] >> 4 == 6 && ip[6] == 0 && ip[40] == 58) {
		assert_true(len >= 14 + 72);
		assert_int_equal(ip[7], 1);
		assert_int_equal(get16(ip + 8), 0xfe80);
		assert_memory_equal(ip + 42, "\5\2\0\0", 4);
		assert_int_equal(glue_sum_fold(glue_sum_add(
					 glue_sum_pseudo(ip + 8, 16, 58, 24),
					 ip + 48, 24)),
				 0xffff);
		assert_memory_equal(frame, "\63\63", 2);
		memcpy(out->to.ip, ip + 24, 16);
		memcpy(out->group.ip, ip + 56, 16);
		return out->type = ip[48];
	}
	return 0;
}

unsigned message_count(unsigned type, const struct net_addr *group,
		       struct net_addr *to)
{
	uint8_t frame[9216];
	struct message m;
	unsigned n = 0, len;

	while ((len = fake_sent(frame, sizeof(frame))))
		if (message_read(frame, len, &m) == type &&
		    memcmp(m.group.ip, group->ip, 16) == 0) {
			*to = m.to;
			n++;
		}
	return n;
}

void message_expect(unsigned n, unsigned type, struct net_addr group,
		    struct net_addr dest)
{
	struct net_addr to = dest;

	assert_int_equal(message_count(type, &group, &to), n);
	assert_memory_equal(to.ip, dest.ip, 16);
}

void group_settle(void)
{
	uint8_t frame[9216];

	run_ms(1500);
	while (fake_sent(frame, sizeof(frame)))
		;
}
