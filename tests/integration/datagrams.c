/*
 * Sends datagrams to an echo server and compares the answers, until COUNT of
 * them have come, a port is unreachable, or a minute has passed.
 *
 * Usage: datagrams LINK ADDRESS GATEWAY PEER BYTES COUNT. GATEWAY may be "-";
 * BYTES: of each datagram, or as many as the path takes. Prints "connected",
 * then "echoed COUNT, room BYTES" (status 0), "refused" (3) or what has failed
 * (1).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <coronet/net_udp.h>

#define ANSWER_NS INT64_C(300000000)
#define ALL_NS	  INT64_C(60000000000)

static struct {
	struct net_addr peer;
	unsigned bytes, count;
	int status;
} the = {.status = 1};

static uint8_t sent[9000], got[9000];

/* Sends one datagram and waits for its answer: 1, 0 (none came), -errno. */
static long exchange(struct net_udp *udp, unsigned turn)
{
	long room = net_udp_room(udp, NULL), n = the.bytes;
	struct net_datagram info;

	if (room < 0)
		return room;
	if (n > room)
		n = room;
	for (long i = 0; i < n; i++)
		sent[i] = (uint8_t)(i * 7 + turn);
	n = net_udp_send(udp, NULL, sent, (size_t)n);
	if (n < 0)
		return n == -EMSGSIZE ? 0 : n;
	net_udp_set_read_deadline(udp,
				  net_now_ns(net_stack_here()) + ANSWER_NS);
	do { /* answers to earlier turns may be late */
		room = net_udp_recv(udp, got, sizeof(got), &info);
		if (room < 0)
			return room == -ETIMEDOUT ? 0 : room;
	} while (room != n || info.len != (size_t)n ||
		 memcmp(sent, got, (size_t)n) != 0);
	return 1;
}

static void run_commands(struct net_udp *udp)
{
	int64_t end_ns = net_now_ns(net_stack_here()) + ALL_NS;
	unsigned done = 0;

	for (unsigned turn = 0; done < the.count; turn++) {
		long n = exchange(udp, turn);

		if (n == -ECONNREFUSED) {
			printf("refused\n");
			the.status = 3;
			return;
		}
		if (n < 0 || net_now_ns(net_stack_here()) > end_ns) {
			printf("failed after %u: %s\n", done,
			       n < 0 ? strerror((int)-n) : "no answer");
			return;
		}
		done += (unsigned)n;
	}
	printf("echoed %u, room %ld\n", done, net_udp_room(udp, NULL));
	the.status = 0;
}

static int start_socket(struct net_stack *stack, void *arg)
{
	struct net_addr any = {0};
	struct net_udp *udp;
	int err = net_udp_open(stack, &any, NULL, &udp);

	if (err == 0)
		err = net_udp_connect(udp, &the.peer);
	if (err < 0)
		return err;
	printf("connected\n");
	fflush(stdout);
	run_commands(udp);
	net_udp_close(udp);
	net_stack_stop(stack);
	return 0;
}

int main(int argc, char **argv)
{
	struct net_opts opts;
	int err;

	if (argc != 7 || net_addr_parse(argv[4], -1, &the.peer) < 0)
		return 2;
	the.bytes = (unsigned)atoi(argv[5]);
	the.count = (unsigned)atoi(argv[6]);
	if (the.bytes > sizeof(sent))
		return 2;
	net_opts_init(&opts);
	opts.poll = NET_POLL_ADAPTIVE;
	opts.links[opts.n_links++] = argv[1];
	net_addr_parse_prefix(argv[2], &opts.addrs[opts.n_addrs++]);
	if (strcmp(argv[3], "-") != 0)
		net_addr_parse(argv[3], 0,
			       the.peer.family == 6 ? &opts.gateway6
						    : &opts.gateway4);
	err = net_run(&opts, start_socket, NULL);
	if (err < 0)
		fprintf(stderr, "datagrams: %s\n", opts.error);
	return err < 0 ? 1 : the.status;
}
