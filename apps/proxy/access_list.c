/* Access lists: networks that are allowed or denied. */
#include "apps/proxy/access_list.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common/opts.h"

static void mask_addr(uint8_t ip[16], unsigned bits)
{
	for (unsigned i = 0; i < 16; i++) {
		unsigned keep = bits > 8 * i ? bits - 8 * i : 0;

		if (keep < 8)
			ip[i] &= (uint8_t)(0xff00 >> keep);
	}
}

/* Parses one network; refuses an address with bits behind its prefix. */
static int parse_net(const char *text, struct access_net *out)
{
	struct access_net net = {.family = strchr(text, ':') ? 6 : 4};
	uint64_t bits = net.family == 4 ? 32 : 128;
	const char *slash = strchr(text, '/');
	uint8_t masked[16];
	char ip[INET6_ADDRSTRLEN];
	size_t len = slash ? (size_t)(slash - text) : strlen(text);

	if (len >= sizeof(ip))
		return -EINVAL;
	memcpy(ip, text, len);
	ip[len] = '\0';
	if (inet_pton(net.family == 4 ? AF_INET : AF_INET6, ip, net.ip) != 1 ||
	    (slash && opt_parse_number(slash + 1, 0, bits, &bits)))
		return -EINVAL;
	memcpy(masked, net.ip, sizeof(masked));
	mask_addr(masked, (unsigned)bits);
	if (memcmp(masked, net.ip, sizeof(masked)) != 0)
		return -EINVAL;
	net.bits = (uint8_t)bits;
	*out = net;
	return 0;
}

static int add_net(struct access_list *list, const struct access_net *net)
{
	if (list->n == ACCESS_LIST_MAX)
		return -E2BIG;
	if (list->n == list->room) {
		unsigned room = list->room ? 2 * list->room : 16;
		struct access_net *nets =
			realloc(list->nets, room * sizeof(*nets));

		if (!nets)
			return -ENOMEM;
		list->nets = nets;
		list->room = room;
	}
	list->nets[list->n++] = *net;
	list->allows |= net->allow;
	return 0;
}

int access_list_add(struct access_list *list, const char *text, bool allow)
{
	for (;;) {
		size_t len = strcspn(text, ",");
		struct access_net net;
		char one[64];
		int err;

		if (len >= sizeof(one))
			return -EINVAL;
		memcpy(one, text, len);
		one[len] = '\0';
		err = parse_net(one, &net);
		net.allow = allow;
		if (err == 0)
			err = add_net(list, &net);
		if (err < 0 || !text[len])
			return err;
		text += len + 1;
	}
}

/* Sorts by family, then the longest prefix, then the address. */
static int compare_nets(const void *a, const void *b)
{
	const struct access_net *x = a, *y = b;

	if (x->family != y->family)
		return x->family < y->family ? -1 : 1;
	if (x->bits != y->bits)
		return x->bits > y->bits ? -1 : 1;
	return memcmp(x->ip, y->ip, sizeof(x->ip));
}

void access_list_ready(struct access_list *list)
{
	unsigned n = 0;

	if (list->n)
		qsort(list->nets, list->n, sizeof(*list->nets), compare_nets);
	for (unsigned i = 0; i < list->n; i++) {
		struct access_net *last = n ? &list->nets[n - 1] : NULL;

		if (last && compare_nets(last, &list->nets[i]) == 0)
			last->allow &= list->nets[i].allow;
		else
			list->nets[n++] = list->nets[i];
	}
	list->n = n;
}

void access_list_fini(struct access_list *list)
{
	free(list->nets);
	*list = (struct access_list){0};
}

/* Returns where the networks of the family and length of nets[at] end. */
static unsigned end_of_length(const struct access_list *list, unsigned at)
{
	unsigned low = at, high = list->n;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;
		const struct access_net *net = &list->nets[middle];

		if (net->family == list->nets[at].family &&
		    net->bits == list->nets[at].bits)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool access_list_allows(const struct access_list *list, uint8_t family,
			const void *ip)
{
	for (unsigned at = 0, end; at < list->n; at = end) {
		struct access_net key = list->nets[at];
		const struct access_net *found;

		end = end_of_length(list, at);
		if (key.family != family)
			continue;
		memset(key.ip, 0, sizeof(key.ip));
		memcpy(key.ip, ip, family == 4 ? 4 : 16);
		mask_addr(key.ip, key.bits);
		found = bsearch(&key, &list->nets[at], end - at, sizeof(key),
				compare_nets);
		if (found)
			return found->allow;
	}
	return !list->allows;
}
