/*
 * For tests of multicast groups: messages of IGMP and MLD, and sockets that
 * join. The stack is that of udp_setup().
 */
#pragma once

#include "tests/net/datagrams.h"

enum { QUERY = 0x11, REPORT = 0x16, LEAVE = 0x17 };
enum { QUERY6 = 130, REPORT6 = 131, DONE6 = 132 };

extern const struct net_addr group4, group6; /* with port 53 */
extern const struct net_addr all_hosts, all_nodes, router6;

/* cmocka's setup and teardown. The latter checks that no group is left. */
int group_setup(void **state);
int group_teardown(void **state);

/* ---- sockets ---- */

/* Opens a socket at every address and port 53. */
struct net_udp *group_socket(const struct net_udp_opts *opts);
void group_join(struct net_udp *udp, struct net_addr group);
/* Returns whether a socket receives a datagram; its bytes must be text. */
bool group_receives(struct net_udp *udp, const char *text);
/* The peer sends a datagram to a group. */
void group_say(struct net_addr from, struct net_addr to, const char *text);
/* Runs the stack until reports of joining have been sent. */
void group_settle(void);

/* ---- messages of IGMP and MLD ---- */

struct message {
	unsigned type;
	struct net_addr from, to, group;
	unsigned max_response; /* IGMP: in 100 ms; MLD: in ms */
};

/* Sends it to the stack; message_queue(): without a round that receives it. */
void message_queue(const struct message *m);
void message_send(const struct message *m);
/* A general query. */
void message_query4(struct net_addr from, unsigned max_response);
void message_query6(struct net_addr from, unsigned max_response);
/*
 * Checks what is the same in all messages that the stack sends, and returns the
 * type; 0: the frame is none.
 */
unsigned message_read(const uint8_t *frame, unsigned len, struct message *out);
/* How many messages of a type about a group were sent; *to: where. */
unsigned message_count(unsigned type, const struct net_addr *group,
		       struct net_addr *to);
/* Checks that there were n, all of them to dest. */
void message_expect(unsigned n, unsigned type, struct net_addr group,
		    struct net_addr dest);
