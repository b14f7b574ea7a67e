/*
 * One stack on a link of arrays, with one neighbour in both families, for
 * targets whose inputs are lists of steps. For one .c file of a program.
 */
#pragma once

#include <assert.h>
#include <string.h>

#include "netstack/link/link_priv.h"
#include "netstack/recovery/recovery_priv.h"
#include "netstack/shard/shard.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"

#include "lwip/etharp.h"
#include "lwip/nd6.h"
#include "lwip/priv/nd6_priv.h"

#define ETH	  14u
#define MAX_STEPS 64u

struct input {
	const uint8_t *at, *end;
};

static struct net_stack *stack;
static const uint8_t us4[4] = {10, 0, 0, 1}, them4[4] = {10, 0, 0, 2};
static const uint8_t us6[16] = {0xfd, [15] = 1}, them6[16] = {0xfd, [15] = 2};

/* The next byte; 0 after the end. */
static unsigned byte(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

/* Copies at most len of the next bytes; returns how many. */
static unsigned copy_bytes(struct input *in, uint8_t *to, unsigned len)
{
	unsigned have = (unsigned)(in->end - in->at);

	if (len > have)
		len = have;
	memcpy(to, in->at, len);
	in->at += len;
	return len;
}

static void open_fuzzed_stack(void)
{
	struct net_opts opts;
	int err;

	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:fuzz";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	net_addr_parse_prefix("fd00::1/64", &opts.addrs[opts.n_addrs++]);
	opts.max_conns = 16;
	opts.poll = NET_POLL_BUSY;
	err = net_stack_open(&opts, &stack);
	assert(err == 0);
}

static void put_ethernet(uint8_t *frame, unsigned type)
{
	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	put16(frame + 12, type);
}

/*
 * Writes an IP header to the stack, without lengths and checksum; returns where
 * the payload goes.
 */
static uint8_t *put_ip_header(uint8_t *frame, bool v6, unsigned proto)
{
	uint8_t *ip = frame + ETH;

	memset(frame, 0, ETH + 40);
	put_ethernet(frame, v6 ? 0x86dd : 0x0800);
	if (v6) {
		ip[6] = (uint8_t)proto;
		ip[7] = 64;
		memcpy(ip + 8, them6, 16);
		memcpy(ip + 24, us6, 16);
		return ip + 40;
	}
	ip[0] = 0x45;
	ip[8] = 64;
	ip[9] = (uint8_t)proto;
	memcpy(ip + 12, them4, 4);
	memcpy(ip + 16, us4, 4);
	return ip + 20;
}

/* The neighbour becomes known; the caller runs the stack. */
static void add_neighbours(void)
{
	struct nd6_neighbor_cache_entry *entry = &neighbor_cache[0];
	uint8_t frame[42] = {0};

	memset(entry, 0, sizeof(*entry));
	memcpy(entry->next_hop_address.addr, them6, 16);
	entry->netif = &net_here()->netifs[0];
	memcpy(entry->lladdr, fake_peer_mac, 6);
	entry->state = ND6_REACHABLE;
	entry->counter.reachable_time = 3600000;
	put_ethernet(frame, 0x0806);
	memcpy(frame + 14, "\0\1\10\0\6\4\0\1", 8);
	memcpy(frame + 22, fake_peer_mac, 6);
	memcpy(frame + 28, them4, 4);
	memcpy(frame + 38, us4, 4);
	fake_receive_wire(frame, sizeof(frame));
}

static void forget_neighbours(void)
{
	etharp_cleanup_netif(&net_here()->netifs[0]);
	nd6_cleanup_netif(&net_here()->netifs[0]);
}

/* What the stack remembers of hosts must not reach the next input. */
static void forget_hosts(void)
{
	memset(net_paths, 0, NET_PATHS * sizeof(*net_paths));
	memset(net_here()->neighbours, 0,
	       NET_NEIGHBOURS * sizeof(*net_here()->neighbours));
	memset(&net_asked, 0, sizeof(net_asked));
}
