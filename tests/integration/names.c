/*
 * Looks up names, or connects to one, on a link that leads to name servers.
 *
 * Usage: names LINK ADDRESS4 ADDRESS6 RESOLVERS WORD... RESOLVERS is that of
 * --resolver, or "-". A WORD is a name, NAME/4 or NAME/6 for one family, or
 * NAME:PORT to connect. Prints a line for each, "WORD ADDRESS..." or "WORD
 * ERROR".
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <coronet/net_resolve.h>

#define LINK_MS 30000

static char **words;

static void show_addrs(const char *word, const struct net_addr *addrs, int n)
{
	char text[NET_ADDR_TEXT_MAX];

	printf("%s", word);
	for (int i = 0; i < n; i++)
		printf(" %s", net_addr_format(&addrs[i], text, sizeof(text)));
	if (n < 0)
		printf(" %s", strerrorname_np(-n));
	printf("\n");
	fflush(stdout);
}

static void connect_to(struct net_stack *stack, const char *word, char *name,
		       char *colon)
{
	struct net_conn *conn;
	struct net_addr peer;
	int err;

	*colon = '\0';
	err = net_dial_name(stack, name, (uint16_t)atoi(colon + 1), NULL,
			    &conn);
	if (err < 0) {
		show_addrs(word, NULL, err);
		return;
	}
	peer = net_peer_addr(conn);
	show_addrs(word, &peer, 1);
	net_close(conn);
}

static void look_up(struct net_stack *stack, const char *word)
{
	struct net_addr addrs[2 * NET_RESOLVE_ADDRS];
	struct net_resolve_opts opts = {.family = 0};
	char name[300];
	char *end;

	snprintf(name, sizeof(name), "%s", word);
	end = strchr(name, ':');
	if (end) {
		connect_to(stack, word, name, end);
		return;
	}
	end = strchr(name, '/');
	if (end) {
		opts.family = (uint8_t)atoi(end + 1);
		*end = '\0';
	}
	show_addrs(
		word, addrs,
		net_resolve(stack, name, &opts, addrs, 2 * NET_RESOLVE_ADDRS));
}

static int start_names(struct net_stack *stack, void *arg)
{
	int err = net_link_wait(stack, LINK_MS);

	if (err < 0)
		return err;
	for (char **word = words; *word; word++)
		look_up(stack, *word);
	net_stack_stop(stack);
	return 0;
}

int main(int argc, char **argv)
{
	struct net_opts opts;
	char *args[] = {argv[0], "--resolver", argc > 4 ? argv[4] : NULL, NULL};
	int err;

	if (argc < 6)
		return 2;
	words = argv + 5;
	net_opts_init(&opts);
	if (strcmp(argv[4], "-") != 0 &&
	    net_parse_args(NULL, 3, args, &opts, NULL) < 0)
		return 2;
	opts.poll = NET_POLL_ADAPTIVE;
	opts.links[opts.n_links++] = argv[1];
	net_addr_parse_prefix(argv[2], &opts.addrs[opts.n_addrs++]);
	net_addr_parse_prefix(argv[3], &opts.addrs[opts.n_addrs++]);
	err = net_run(&opts, start_names, NULL);
	if (err < 0)
		fprintf(stderr, "names: %s\n", opts.error);
	return err < 0 ? 1 : 0;
}
