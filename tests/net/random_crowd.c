/*
 * The clients of a crowd, each with little of TCP: a fixed window, one timer,
 * everything again from the first byte that is not acknowledged. They share no
 * code with the stack.
 */
#include "tests/net/random_shards.h"

#include <stdlib.h>
#include <string.h>

#include "tests/bytes.h"

#define FIRST_PORT 20000u
#define RTO	   (250 * MS)
#define RTO_MAX	   SECOND
#define SCALE	   3u		/* of the windows that clients announce */
#define ROOM	   60000u	/* bytes of a client's window */
#define BURST	   4u		/* segments that a client sends at once */
#define STANDSTILL (8 * SECOND) /* a reader's longest wait for a byte */
#define RESETS	   4u		/* of a client without an answer */
#define KEEPALIVE  (2 * SECOND) /* of a client whose connection may be gone */

enum state { AWAY, OPENING, OPEN, GONE };

struct client {
	enum client_kind kind;
	enum state state;
	uint16_t port, to;
	uint16_t host;
	uint32_t iss, irs;
	/* Offsets in the two streams; the FIN is behind the last byte. */
	uint32_t una, next, end, edge;
	uint32_t got, wanted, room;
	bool fin_sent, fin_got, shut;
	unsigned scale; /* of the stack's window */
	unsigned dups;
	int64_t starts, due, rto, progress;
};

static struct client clients[CLIENTS_MAX];
static unsigned n_clients;

/* ---- sending ---- */

static void send_segment(struct client *c, uint8_t flags, uint32_t offset,
			 unsigned len)
{
	static const uint8_t syn_options[8] = {2, 4, 0, 0, 1, 3, 3, SCALE};
	uint8_t data[1460], options[8];
	struct segment s = {
		.src = c->port,
		.dst = c->to,
		.seq = c->iss + !(flags & PEER_SYN) + offset,
		.ack = c->irs + 1 + c->got + c->fin_got,
		.flags = flags,
		.options = options,
		.data = data,
		.len = len,
		.wnd = (uint16_t)(c->room >> SCALE),
	};

	if (flags & PEER_SYN) {
		memcpy(options, syn_options, sizeof(options));
		put16(options + 2, crowd.draw.mss);
		s.options_len = sizeof(options);
		s.wnd = (uint16_t)c->room;
		s.ack = 0;
	}
	for (unsigned i = 0; i < len; i++)
		data[i] = crowd_byte(c->port, offset + i);
	crowd_send(c->host, &s);
}

static void arm_client(struct client *c)
{
	if (c->una != c->next || c->state != OPEN || c->fin_sent)
		c->due = crowd.now + c->rto;
	else
		c->due = crowd.draw.drop_every ? crowd.now + KEEPALIVE : NEVER;
}

/* The FIN comes when all data was sent, and all that was asked for has come. */
static bool may_end(const struct client *c)
{
	return c->next == c->end && c->got == c->wanted && !c->fin_sent;
}

static void send_data(struct client *c)
{
	unsigned n = 0;

	while (c->next < c->end && c->next < c->edge && n++ < BURST) {
		uint32_t len = c->end - c->next;

		len = LWIP_MIN(len, c->edge - c->next);
		len = LWIP_MIN(len, crowd.draw.mss);
		send_segment(c, PEER_ACK | PEER_PSH, c->next, len);
		c->next += len;
	}
	if (may_end(c)) {
		c->fin_sent = true;
		send_segment(c, PEER_ACK | PEER_FIN, c->end, 0);
	}
	if (c->due == NEVER)
		arm_client(c);
}

static void send_ack(struct client *c)
{
	bool behind_fin = c->fin_sent && c->next == c->end;

	send_segment(c, PEER_ACK, c->next + behind_fin, 0);
}

/* A reset counts only with the number that the stack expects. */
static void send_reset(struct client *c, uint32_t seq)
{
	send_segment(c, PEER_RST | PEER_ACK, seq - c->iss - 1, 0);
	c->due = crowd.now + c->rto;
}

static void leave_crowd(struct client *c)
{
	crowd.ended += c->kind == READER;
	crowd.alive--;
	c->state = GONE;
	c->due = NEVER;
}

static void time_out(struct client *c)
{
	c->rto = LWIP_MIN(2 * c->rto, RTO_MAX);
	c->due = crowd.now + c->rto;
	switch (c->state) {
	case AWAY:
		c->state = OPENING;
		c->progress = crowd_active_ns();
		c->rto = RTO;
		c->due = crowd.now + c->rto;
		send_segment(c, PEER_SYN, 0, 0);
		break;
	case OPENING:
		send_segment(c, PEER_SYN, 0, 0);
		break;
	case OPEN:
		if (c->kind == MUTE && crowd.wakes) {
			if (++c->dups > RESETS)
				leave_crowd(c);
			else
				send_reset(c, c->iss + 1 + c->una);
			break;
		}
		if (c->una == c->next && !c->fin_sent)
			send_ack(c); /* a keepalive */
		c->next = c->una;
		c->fin_sent = false;
		if (c->next < c->end && c->next == c->edge) /* a probe */
			send_segment(c, PEER_ACK, c->next, 1);
		send_data(c);
		break;
	case GONE:
		break;
	}
}

/* ---- receiving ---- */

static unsigned scale_of(const struct segment *s)
{
	for (unsigned i = 0; i + 2 < s->options_len;) {
		if (s->options[i] == 3)
			return s->options[i + 2];
		i += s->options[i] <= 1 ? 1 : LWIP_MAX(s->options[i + 1], 2);
	}
	return 0;
}

static void take_opening(struct client *c, const struct segment *s)
{
	if (!(s->flags & PEER_SYN) || s->ack != c->iss + 1)
		return;
	c->state = OPEN;
	c->irs = s->seq;
	c->scale = scale_of(s);
	c->edge = s->wnd;
	c->rto = RTO;
	c->due = NEVER;
	c->progress = crowd_active_ns();
	send_ack(c);
	send_data(c);
}

static void take_ack(struct client *c, const struct segment *s)
{
	uint32_t ack = s->ack - c->iss - 1;
	uint32_t most = c->end + c->fin_sent;
	bool was_shut = c->next == c->edge;

	if (ack > most)
		return; /* of what has been sent again since */
	c->edge = LWIP_MAX(c->edge, ack + ((uint32_t)s->wnd << c->scale));
	if (ack > c->una) {
		c->una = ack;
		c->next = LWIP_MAX(c->next, LWIP_MIN(ack, c->end));
		c->dups = 0;
		c->rto = RTO;
		c->progress = crowd_active_ns();
		arm_client(c);
	} else if (c->una < c->next && !s->len && ++c->dups == 3) {
		c->next = c->una;
	}
	if (was_shut && c->edge > c->next)
		c->due = NEVER; /* send_data() arms it */
	c->shut = c->edge == c->next;
}

static void take_data(struct client *c, const struct segment *s)
{
	uint32_t offset = s->seq - c->irs - 1;
	uint32_t end = offset + s->len;
	uint32_t most = c->got + c->room, from = c->got;

	if (offset > from || c->fin_got) {
		send_ack(c);
		return;
	}
	end = LWIP_MIN(end, most);
	if (end > from) {
		crowd_compare("the path", c->port, from,
			      s->data + (from - offset), end - from);
		c->got = end;
		c->progress = crowd_active_ns();
		if (c->kind != READER && !(c->kind == LATE && crowd.wakes))
			c->room -= end - from;
		if (c->got > c->wanted)
			crowd_violated("client %u has %u of %u bytes", c->port,
				       c->got, c->wanted);
	}
	if (s->flags & PEER_FIN && offset + s->len == c->got) {
		if (c->got != c->wanted)
			crowd_violated("client %u: a FIN after %u of %u bytes",
				       c->port, c->got, c->wanted);
		c->fin_got = true;
		c->progress = crowd_active_ns();
	}
	send_ack(c);
}

/* The stack may reset only whom memory is short for, and whom nobody reads. */
static void take_reset(struct client *c, const struct segment *s)
{
	bool is_new =
		c->state == OPEN && s->seq == c->irs + 1 + c->got + c->fin_got;

	if (c->kind == MUTE && crowd.wakes) {
		leave_crowd(c);
		return;
	}
	if (!is_new && c->state == OPEN)
		send_ack(c); /* RFC 5961 3.2 */
	if (!is_new && c->state != OPENING)
		return;
	if (!crowd.may_reset)
		crowd_violated("client %u is reset without a cause", c->port);
	crowd.resets++;
	leave_crowd(c);
}

static void take_segment(struct client *c, const struct segment *s)
{
	if (c->state == GONE && c->fin_got && s->flags & PEER_FIN)
		send_ack(c); /* the last ACK was lost */
	if (c->state == AWAY || c->state == GONE)
		return;
	if (s->flags & PEER_RST) {
		take_reset(c, s);
		return;
	}
	if (c->state == OPENING) {
		take_opening(c, s);
		return;
	}
	if (s->flags & PEER_SYN) {
		send_ack(c);
		return;
	}
	if (c->kind == MUTE && crowd.wakes) {
		c->dups = 0;
		send_reset(c, s->ack);
		return;
	}
	take_ack(c, s);
	if (s->len || s->flags & PEER_FIN)
		take_data(c, s);
	else if (s->seq != c->irs + 1 + c->got + c->fin_got)
		send_ack(c); /* a probe */
	send_data(c);
	if (c->fin_got && c->una == c->end + 1)
		leave_crowd(c);
}

/* ---- the crowd ---- */

void crowd_receive(const struct segment *s)
{
	unsigned at = s->dst - FIRST_PORT;

	if (at < n_clients)
		take_segment(&clients[at], s);
}

static void check_standstill(const struct client *c)
{
	if (c->kind == READER && c->state != AWAY && c->state != GONE &&
	    crowd_active_ns() - c->progress > STANDSTILL)
		crowd_violated("client %u stands still with %u of %u bytes, "
			       "state %d; %llu frames had no buffer",
			       c->port, c->got, c->wanted, (int)c->state,
			       (unsigned long long)crowd.lost);
}

void crowd_run(void)
{
	crowd_path_run();
	for (unsigned i = 0; i < n_clients; i++) {
		if (clients[i].due <= crowd.now)
			time_out(&clients[i]);
		check_standstill(&clients[i]);
	}
}

int64_t crowd_due(void)
{
	int64_t due = crowd_path_due();

	for (unsigned i = 0; i < n_clients; i++)
		due = LWIP_MIN(due, clients[i].due);
	return due;
}

void crowd_print(void)
{
	static const char *const kinds[] = {"reader", "mute", "late"};

	for (unsigned i = 0; i < n_clients; i++) {
		const struct client *c = &clients[i];

		if (c->state != GONE)
			printf("client %u, %s: state %d, sent %u of %u, %u "
			       "acknowledged, window up to %u, has %u of %u, "
			       "fin %d and %d\n",
			       c->port, kinds[c->kind], (int)c->state, c->next,
			       c->end, c->una, c->edge, c->got, c->wanted,
			       c->fin_sent, c->fin_got);
	}
}

bool crowd_is_stuck(void)
{
	for (unsigned i = 0; i < n_clients; i++)
		if (clients[i].kind != READER && clients[i].state != GONE &&
		    (clients[i].state != OPEN || !clients[i].shut))
			return false;
	return true;
}

/* The mutes go; those that were only late read all that waits for them. */
void crowd_wake(void)
{
	crowd.wakes = true;
	for (unsigned i = 0; i < n_clients; i++) {
		struct client *c = &clients[i];

		if (c->kind == READER || c->state == GONE)
			continue;
		c->rto = RTO;
		c->due = crowd.now;
		if (c->kind == LATE) {
			c->room = ROOM;
			if (c->state == OPEN)
				send_ack(c);
		}
	}
}

static void init_client(struct client *c, unsigned i)
{
	const struct crowd_draw *draw = &crowd.draw;
	bool reads = i < draw->readers;

	memset(c, 0, sizeof(*c));
	c->kind = reads ? READER : rng_chance(&crowd.rng, 850) ? MUTE : LATE;
	c->port = (uint16_t)(FIRST_PORT + i);
	c->to = c->kind == READER ? ECHO_PORT : TALK_PORT;
	c->host = (uint16_t)rng_next(&crowd.rng);
	c->iss = (uint32_t)rng_next(&crowd.rng);
	c->end = reads ? rng_log(&crowd.rng, 1, 200000) : 300000;
	c->wanted = reads ? c->end : TALK_BYTES;
	c->room = reads ? ROOM : rng_below(&crowd.rng, ROOM);
	c->rto = RTO;
	/* Readers come all the time; the mutes within the first second. */
	c->due = crowd.now +
		 (int64_t)rng_below(&crowd.rng, reads ? 4000 : 1000) * MS;
}

void crowd_begin(void)
{
	n_clients = crowd.draw.readers + crowd.draw.mutes;
	crowd.alive = n_clients;
	for (unsigned i = 0; i < n_clients; i++)
		init_client(&clients[i], i);
	crowd_path_begin();
}
