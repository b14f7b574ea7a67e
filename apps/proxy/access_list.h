/*
 * Access lists: networks that are allowed or denied.
 *
 * The longest prefix that contains an address decides. An address in no network
 * is denied if the list allows a network, and allowed otherwise. One thread
 * builds a list; then it is constant, and any number of threads may search it.
 * A lookup costs a binary search for each prefix length in the list.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACCESS_LIST_MAX 16384 /* networks */

struct access_net {
	uint8_t family; /* 4 or 6 */
	uint8_t bits;	/* of the prefix */
	bool allow;	/* otherwise: deny */
	uint8_t ip[16]; /* network byte order, zeros behind the prefix */
};

struct access_list {
	struct access_net *nets; /* owned; sorted by access_list_ready() */
	unsigned n, room;
	bool allows; /* some network is allowed */
};

/*
 * Adds networks from text: "10.0.0.0/8", "2001:db8::/32" or a single address,
 * separated by commas. Returns 0, -EINVAL (malformed, or bits are set behind
 * the prefix), -E2BIG or -ENOMEM. Zeroed memory is an empty list.
 */
int access_list_add(struct access_list *list, const char *text, bool allow);

/*
 * Sorts the list after the last network was added. If a network is both allowed
 * and denied, it is denied.
 */
void access_list_ready(struct access_list *list);
void access_list_fini(struct access_list *list);

/*
 * Returns whether an address is allowed; ip: 4 or 16 bytes. An empty list
 * allows all.
 */
bool access_list_allows(const struct access_list *list, uint8_t family,
			const void *ip);
