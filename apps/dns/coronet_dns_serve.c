/*
 * Answers queries: datagrams by batches, and TCP connections, each with any
 * number of queries (RFC 7766).
 */
#include "apps/dns/coronet_dns_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common/datagrams.h"

/* Time that a client has for its last answer. */
#define CLOSE_NS INT64_C(5000000000)

static void count_answer(struct dns_shard *shard,
			 const struct dns_outcome *outcome, bool slipped)
{
	struct dns_counters *counters = &shard->counters;

	counters_add(&counters->rcodes[outcome->rcode], 1);
	if (slipped)
		counters_add(&counters->slipped, 1);
	else if (outcome->truncated)
		counters_add(&counters->truncated, 1);
}

/* ---- UDP ---- */

static bool is_query(const struct net_datagram *got)
{
	return got->len >= DNS_HEADER_BYTES &&
	       !(((const uint8_t *)got->data)[2] & 0x80);
}

/* Returns 0, or which answer beyond its rate a source gets. */
static uint32_t count_over(const struct dns_shard *shard,
			   const struct net_addr *peer)
{
	return dns.rate ? source_rate_over(dns.rate, peer->family, peer->ip,
					   dns.rate_limit,
					   net_now_ns(shard->stack))
			: 0;
}

/* Writes the answer to a datagram. Returns its length, or 0: none. */
static size_t answer_datagram(struct dns_shard *shard,
			      const struct net_datagram *got, uint8_t *answer)
{
	enum dns_carriage carriage = DNS_OVER_UDP;
	struct dns_outcome outcome;
	uint32_t n_over;
	size_t len;

	if (!is_query(got)) {
		counters_add(&shard->counters.ignored, 1);
		return 0;
	}
	counters_add(&shard->counters.udp_queries, 1);
	n_over = count_over(shard, &got->peer);
	if (n_over && (dns.rate_slip == 0 || n_over % dns.rate_slip)) {
		counters_add(&shard->counters.limited, 1);
		return 0;
	}
	if (n_over)
		carriage = DNS_TRUNCATED_UDP;
	len = dns_answer(shard->zones, got->data, got->len, carriage, answer,
			 DNS_UDP_EDNS, &outcome);
	count_answer(shard, &outcome, carriage == DNS_TRUNCATED_UDP);
	return len;
}

/*
 * Sends one answer again that is too long for its path: truncated. got: the
 * query; answer: where there is room.
 */
static void send_truncated(struct dns_shard *shard,
			   const struct net_datagram *got,
			   struct net_datagram *answer)
{
	struct dns_outcome outcome;

	answer->len =
		dns_answer(shard->zones, got->data, got->len, DNS_TRUNCATED_UDP,
			   (uint8_t *)answer->data, DNS_UDP_EDNS, &outcome);
	if (datagrams_send(shard->udp, answer, 1) == 1)
		counters_add(&shard->counters.truncated, 1);
	else
		counters_add(&shard->counters.unsent, 1);
}

/* Sends n answers; queries[i] is what answers[i] answers. */
static void send_answers(struct dns_shard *shard, struct net_datagram *answers,
			 const struct net_datagram *const *queries, unsigned n)
{
	unsigned sent = 0;

	while (sent < n) {
		int rc = datagrams_send(shard->udp, answers + sent, n - sent);

		if (rc == -ECANCELED)
			return;
		if (rc == -EMSGSIZE)
			send_truncated(shard, queries[sent], &answers[sent]);
		else if (rc < 0) /* no room on the link, a client's port of 0 */
			counters_add(&shard->counters.unsent, 1);
		sent += rc < 0 ? 1 : (unsigned)rc;
	}
}

static void answer_batch(struct dns_shard *shard,
			 const struct net_datagram *got, unsigned n)
{
	const struct net_datagram *queries[DNS_BATCH];
	struct net_datagram answers[DNS_BATCH];
	unsigned n_answers = 0;

	for (unsigned i = 0; i < n; i++) {
		uint8_t *answer = shard->udp_answers[n_answers];
		size_t len = answer_datagram(shard, &got[i], answer);

		if (len == 0)
			continue;
		queries[n_answers] = &got[i];
		answers[n_answers++] = (struct net_datagram){
			.data = answer,
			.len = len,
			.peer = got[i].peer,
			.local = got[i].local,
		};
	}
	if (n_answers > 0)
		send_answers(shard, answers, queries, n_answers);
}

void dns_serve_udp(struct dns_shard *shard)
{
	struct net_datagram got[DNS_BATCH];
	int n;

	while ((n = datagrams_recv(shard->udp, got, DNS_BATCH,
				   &shard->counters.receive_errors)) > 0) {
		answer_batch(shard, got, (unsigned)n);
		net_udp_release(shard->udp, got, (unsigned)n);
	}
}

/* ---- TCP ---- */

/*
 * Sends an answer while others are answered. Its copy is no memory of the
 * stack, so the shard's copies have a bound of their own: beyond it, this
 * client's connection ends.
 */
static long send_copy(struct dns_client *client, const uint8_t *answer,
		      size_t len)
{
	struct dns_shard *shard = client->shard;
	uint8_t *copy = NULL;
	long rc;

	if (len <= DNS_TCP_COPIES_MAX - shard->copies_bytes)
		copy = malloc(len);
	if (!copy) {
		counters_add(&shard->counters.unsent, 1);
		return -ENOMEM;
	}
	shard->copies_bytes += len;
	memcpy(copy, answer, len);
	rc = net_send_all(client->conn, copy, len);
	shard->copies_bytes -= len;
	free(copy);
	return rc;
}

/*
 * Sends an answer that lies in the shard's buffer: if it would block, a copy,
 * since the buffer is the next client's.
 */
static long send_answer(struct dns_client *client, const uint8_t *answer,
			size_t len)
{
	struct net_conn *conn = client->conn;
	long rc;

	if (net_ready(conn, NET_WRITABLE) & NET_WRITABLE) {
		rc = net_writable(conn);
		if (rc < 0 || (size_t)rc >= len)
			return rc < 0 ? rc : net_send_all(conn, answer, len);
	}
	return send_copy(client, answer, len);
}

/* Answers one query. Returns false: the connection ends. */
static bool answer_message(struct dns_client *client, const uint8_t *msg,
			   size_t len)
{
	struct dns_shard *shard = client->shard;
	uint8_t *answer = shard->tcp_answer;
	struct dns_outcome outcome;
	size_t answer_len;

	answer_len = dns_answer(shard->zones, msg, len, DNS_OVER_TCP,
				answer + DNS_TCP_LENGTH, DNS_TCP_ANSWER_MAX,
				&outcome);
	if (answer_len == 0) {
		counters_add(&shard->counters.ignored, 1);
		return false;
	}
	counters_add(&shard->counters.tcp_queries, 1);
	count_answer(shard, &outcome, false);
	dns_put16(answer, (unsigned)answer_len);
	return send_answer(client, answer, DNS_TCP_LENGTH + answer_len) > 0;
}

/*
 * Receives the rest of a query of len bytes and answers it. Out of line, so
 * that its buffer does not lie on the stack of an idle connection.
 */
__attribute__((noinline)) static bool take_message(struct dns_client *client,
						   size_t len)
{
	uint8_t msg[DNS_TCP_QUERY_MAX];

	if (net_recv_full(client->conn, msg, len) != (long)len)
		return false;
	return answer_message(client, msg, len);
}

/* The time for the next query, and for all of its bytes. */
static void set_deadlines(const struct dns_client *client)
{
	int64_t until_ns = net_now_ns(client->shard->stack);

	if (!client->stopped)
		until_ns += dns.idle_ns;
	net_set_read_deadline(client->conn, until_ns);
	net_set_write_deadline(client->conn, until_ns + CLOSE_NS);
}

static void answer_queries(struct dns_client *client)
{
	uint8_t prefix[DNS_TCP_LENGTH];
	bool go_on = true;

	while (go_on) {
		size_t len;
		long n;

		set_deadlines(client);
		client->idle = true;
		n = net_recv_full(client->conn, prefix, sizeof(prefix));
		client->idle = false;
		if (n != sizeof(prefix))
			return;
		len = dns_get16(prefix);
		if (len > DNS_TCP_QUERY_MAX)
			counters_add(&client->shard->counters.ignored, 1);
		go_on = len <= DNS_TCP_QUERY_MAX && take_message(client, len);
	}
}

void dns_serve_tcp(struct net_conn *conn, void *arg)
{
	struct dns_shard *shard = arg;
	struct dns_client *client = malloc(sizeof(*client));

	if (!client)
		return;
	*client = (struct dns_client){.shard = shard,
				      .conn = conn,
				      .co = coro_self(),
				      .next = shard->client_list,
				      .pprev = &shard->client_list};
	if (client->next)
		client->next->pprev = &client->next;
	shard->client_list = client;
	counters_add(&shard->counters.clients, 1);
	counters_add(&shard->counters.accepts, 1);
	answer_queries(client);
	shutdown_close_conn(&client->closing, conn, CLOSE_NS);
	*client->pprev = client->next;
	if (client->next)
		client->next->pprev = client->pprev;
	free(client);
	counters_set(&shard->counters.clients, shard->counters.clients - 1);
	shutdown_progress(&shard->shutdown);
}

void dns_hurry(struct dns_shard *shard)
{
	for (struct dns_client *c = shard->client_list; c; c = c->next) {
		c->stopped = true;
		if (c->idle) {
			set_deadlines(c);
			coro_unpark(c->co);
		}
	}
}
