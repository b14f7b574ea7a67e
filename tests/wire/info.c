/*
 * info: prints net_conn_stats() of a connection as JSON, with the field names
 * of Linux's TCP_INFO. `info PORT BYTES` sends BYTES bytes to each client and
 * reads as many; when all is acknowledged it prints a line. The options of any
 * appliance follow.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <coronet/net.h>

#include <cjson/cJSON.h>

#define LOOK_NS 5000000

static uint8_t data[65536];
static uint64_t bytes;
static bool sending;

static void add_number(cJSON *object, const char *name, uint64_t value)
{
	cJSON_AddNumberToObject(object, name, (double)value);
}

static void print_info(const struct net_tcp_info *info)
{
	cJSON *object = cJSON_CreateObject();
	char *text;

#define ADD(name) add_number(object, #name, info->name)
	ADD(absent), ADD(state), ADD(ca_state), ADD(retransmits), ADD(probes);
	ADD(backoff), ADD(options), ADD(snd_wscale), ADD(rcv_wscale), ADD(rto);
	ADD(snd_mss), ADD(rcv_mss), ADD(unacked), ADD(sacked), ADD(lost);
	ADD(retrans), ADD(last_data_sent), ADD(last_data_recv), ADD(pmtu);
	ADD(rtt), ADD(rttvar), ADD(min_rtt), ADD(snd_ssthresh), ADD(snd_cwnd);
	ADD(advmss), ADD(reordering), ADD(total_retrans), ADD(total_rto);
	ADD(bytes_acked), ADD(bytes_received), ADD(bytes_sent);
	ADD(bytes_retrans), ADD(segs_out), ADD(segs_in), ADD(data_segs_out);
	ADD(data_segs_in), ADD(notsent_bytes), ADD(delivered), ADD(dsack_dups);
	ADD(reord_seen), ADD(rcv_ooopack), ADD(snd_wnd), ADD(rcv_wnd);
	ADD(busy_time), ADD(rwnd_limited), ADD(sndbuf_limited);
	ADD(delivered_ce), ADD(rcv_rtt), ADD(rcv_space);
#undef ADD
	text = cJSON_PrintUnformatted(object);
	printf("%s\n", text);
	fflush(stdout);
	cJSON_free(text);
	cJSON_Delete(object);
}

static void *send_all(void *arg)
{
	struct net_conn *conn = arg;
	uint64_t left = bytes;

	while (left) {
		size_t len = left < sizeof(data) ? left : sizeof(data);

		if (net_send_all(conn, data, len) < 0)
			break;
		left -= len;
	}
	sending = false;
	return NULL;
}

static bool take_all(struct net_conn *conn)
{
	struct net_view view;
	uint64_t left = bytes;
	long n;

	while (left) {
		n = net_recv_view(conn, &view);
		if (n <= 0)
			return false;
		left -= (uint64_t)n;
		net_view_release(conn, &view);
	}
	return true;
}

static void serve_info(struct net_conn *conn, void *arg)
{
	struct net_conn_stats stats;

	sending = true;
	if (net_spawn(net_conn_stack(conn), "sender", send_all, conn) < 0 ||
	    !take_all(conn))
		return;
	do {
		if (net_conn_stats(conn, &stats) < 0 ||
		    stats.state == NET_TCP_CLOSED)
			return;
		if (!sending && stats.unacked + stats.unsent == 0)
			break;
	} while (coro_sleep_ns(LOOK_NS) == 0);
	print_info(&stats.info);
	net_recv(conn, data, 1); /* the peer looks as well, and closes */
}

int main(int argc, char **argv)
{
	struct net_stack *stack;
	struct net_addr any;
	int err;

	if (argc < 3) {
		fprintf(stderr, "usage: info PORT BYTES OPTION...\n");
		return 2;
	}
	any = net_addr_any((uint16_t)strtoul(argv[1], NULL, 10));
	bytes = strtoull(argv[2], NULL, 10);
	argv[2] = argv[0];
	err = net_stack_open_args(argc - 2, argv + 2, &stack);
	if (err < 0)
		return net_exit_status(err);
	return net_exit_status(net_serve(stack, &any, serve_info, NULL));
}
