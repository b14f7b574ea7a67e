/*
 * Each shard dials the stack's own addresses, of two links, and exchanges
 * streams with itself: received streams have the hash of the sent ones, closed
 * ports refuse, and only reports of multicast groups leave.
 *
 * Usage: own-address SHARDS MIB; the exit status is 0 on success.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include <coronet/net.h>

#define PIECE	    16384u
#define REPORTS_MAX 4000u /* bytes a shard */

static const char *const addrs[] = {"10.0.0.1/24", "fd00::1/64", "10.1.0.1/24",
				    "fd01::1/64"};
#define N_ADDRS (sizeof(addrs) / sizeof(addrs[0]))

static uint64_t each_bytes;
static _Atomic unsigned failed, undone;

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	atomic_store(&failed, 1);
	fprintf(stderr, "shard %u: %s\n", net_stack_shard(net_stack_here()),
		what);
}

/* Sends the stream of a seed, and its hash at the end. */
static void send_stream(struct net_conn *conn, unsigned seed)
{
	uint8_t digest[crypto_hash_sha256_BYTES], *piece = malloc(PIECE);
	crypto_hash_sha256_state *hash = malloc(sizeof(*hash));
	uint64_t rest = each_bytes;

	crypto_hash_sha256_init(hash);
	for (; rest; rest -= PIECE) {
		memcpy(piece, &rest, sizeof(rest));
		memset(piece + sizeof(rest), (int)(rest >> 14) ^ (int)seed,
		       PIECE - sizeof(rest));
		crypto_hash_sha256_update(hash, piece, PIECE);
		if (net_send_all(conn, piece, PIECE) < 0)
			break;
	}
	crypto_hash_sha256_final(hash, digest);
	require(rest == 0 && net_send_all(conn, digest, sizeof(digest)) > 0,
		"sending has ended early");
	net_shutdown(conn, NET_SHUT_WR);
	free(hash);
	free(piece);
}

static void receive_stream(struct net_conn *conn)
{
	uint8_t digest[crypto_hash_sha256_BYTES], sent[sizeof(digest)] = "";
	uint8_t *piece = malloc(PIECE);
	crypto_hash_sha256_state *hash = malloc(sizeof(*hash));
	uint64_t rest = each_bytes;

	crypto_hash_sha256_init(hash);
	for (; rest && net_recv_full(conn, piece, PIECE) == PIECE;
	     rest -= PIECE)
		crypto_hash_sha256_update(hash, piece, PIECE);
	crypto_hash_sha256_final(hash, digest);
	net_recv_full(conn, sent, sizeof(sent));
	require(rest == 0 && memcmp(sent, digest, sizeof(sent)) == 0,
		"what was received is not what was sent");
	free(hash);
	free(piece);
}

static void *send_own(void *conn)
{
	send_stream(conn, net_stack_shard(net_stack_here()));
	return NULL;
}

/* Runs one end of a stream; after the last one the program stops. */
static void run_end(struct net_conn *conn, void *arg)
{
	struct coro *sender;

	if (coro_spawn(coro_sched_self(), NULL, send_own, conn, &sender) < 0)
		return;
	receive_stream(conn);
	coro_join(sender, NULL);
	if (atomic_fetch_sub(&undone, 1) == 1)
		net_stack_stop(net_stack_here());
}

static int dial_address(struct net_stack *stack, const char *text,
			unsigned port, struct net_conn **conn)
{
	struct net_addr addr;

	net_addr_parse_prefix(text, &addr);
	addr.port = (uint16_t)port;
	return net_dial(stack, &addr, NULL, conn);
}

/* Adds up the shard's counters. */
static void look_at_addrs(void)
{
	struct net_stats stats;

	net_stack_stats(net_stack_here(), &stats);
	require(stats.tx_bytes < REPORTS_MAX, "frames have left");
	require(stats.looped * 1500 > 2 * each_bytes, "few packets were seen");
	printf("shard %u: %lu packets, %lu dropped, %lu bytes left\n",
	       net_stack_shard(net_stack_here()), (unsigned long)stats.looped,
	       (unsigned long)stats.loop_drops, (unsigned long)stats.tx_bytes);
}

static void *exchange(void *arg)
{
	struct net_stack *stack = net_stack_here();
	const char *addr = addrs[net_stack_shard(stack) % N_ADDRS];
	struct net_conn *conn = NULL;

	for (unsigned i = 0; i < N_ADDRS; i++)
		require(dial_address(stack, addrs[i], 8, &conn) ==
				-ECONNREFUSED,
			"a closed port does not refuse");
	if (dial_address(stack, addr, 7, &conn) < 0) {
		require(false, "an address of ours is not reached");
		net_stack_stop(stack);
	} else {
		run_end(conn, NULL);
		net_close(conn);
	}
	look_at_addrs();
	return NULL;
}

static int start_dials(struct net_stack *stack, void *arg)
{
	struct net_listener *listener;
	int err = net_listen(stack, &net_addr_any(7), 0, &listener);

	if (err == 0)
		err = net_listener_serve(listener, run_end, NULL);
	return err < 0 ? err : net_spawn(stack, "exchange", exchange, NULL);
}

int main(int argc, char **argv)
{
	struct net_opts opts;
	int err;

	if (argc != 3)
		return 2;
	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:a";
	opts.links[opts.n_links++] = "ring:b";
	for (unsigned i = 0; i < N_ADDRS; i++) {
		opts.addr_links[opts.n_addrs] = (uint8_t)(i / 2);
		net_addr_parse_prefix(addrs[i], &opts.addrs[opts.n_addrs++]);
	}
	opts.shards = (unsigned)atoi(argv[1]);
	opts.poll = NET_POLL_ADAPTIVE;
	each_bytes = (uint64_t)atoi(argv[2]) << 20;
	undone = 2 * opts.shards;
	err = net_run(&opts, start_dials, NULL);
	if (err < 0)
		fprintf(stderr, "%s\n", opts.error);
	return err < 0 || failed;
}
