/*
 * Tests of routes: a stack with two links and six addresses, and what it sends
 * first to an address. A test changes the options before it opens the stack.
 */
#pragma once

#include <stdint.h>

#include <coronet/net.h>

extern struct net_opts route_opts;

/* A setup of cmocka: two IPv4 and two IPv6 addresses on the first link, one of
   each on the second. */
int route_setup(void **state);
/* link: from 0 */
void route_add_addr(const char *text, unsigned link);
void route_add(const char *text);
void route_open_stack(void);

void route_drop_sent(void);
/* Dials in vain for 5 ms; source NULL: none. Returns the result. */
int route_dial_from(const char *source, const char *to);
/* The source and the neighbour of the first question that was sent. */
void route_read_question(struct net_addr *from, struct net_addr *hop);
/* Receives an ARP reply, or an announcement if sender is target. */
void route_hear_arp(const uint8_t mac[6], const char *sender,
		    const char *target);

void route_expect_addr(const char *text, const struct net_addr *addr);
/* A dial comes from `from`, and its SYN waits for the neighbour `hop`. */
void route_expect(const char *to, const char *from, const char *hop);
/* Looks up the neighbour of a destination, without a packet. */
void route_expect_hop(const char *to, const char *hop);
void route_expect_no_hop(const char *to);
