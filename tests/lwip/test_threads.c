/*
 * Two independent lwIPs on two threads: each is its own peer over a link that
 * returns its frames. Half-way, the threads swap their lwIPs. Of netstack/ only
 * the options and shard_var.c are linked; stubs of the functions that lwIP
 * calls are below.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lwip/etharp.h"
#include "lwip/igmp.h"
#include "lwip/init.h"
#include "lwip/ip.h"
#include "lwip/memp.h"
#include "lwip/mld6.h"
#include "lwip/nd6.h"
#include "lwip/netif.h"
#include "lwip/priv/memp_priv.h"
#include "lwip/priv/nd6_priv.h"
#include "lwip/priv/tcp_priv.h"
#include "lwip/tcp.h"
#include "lwip/udp.h"
#include "netstack/lwip/hooks.h"

#define THREADS	    2
#define CONNECTIONS 50
#define PORT	    7
#define ON_LINE	    64

/* The state of one lwIP. */
struct world {
	intptr_t distance; /* of its variables */
	unsigned number;
	struct netif netif;
	struct pbuf *line[ON_LINE]; /* frames in flight */
	unsigned first, n;
	unsigned accepted, connected, echoed, closed;
	struct tcp_pcb *listener;
	struct world *other;
	pthread_barrier_t *barrier;
	const void *pcbs; /* where its lists are */
};

static _Thread_local struct world *here;

/* ---- stubs of netstack/ ---- */

static const uint32_t sizes[MEMP_MAX] = {
#define LWIP_MEMPOOL(name, num, size, desc) [MEMP_##name] = (uint32_t)(size),
#include "lwip/priv/memp_std.h"
};

void memp_init(void)
{
}

void *memp_malloc(memp_t type)
{
	return malloc(sizes[type]);
}

void memp_free(memp_t type, void *mem)
{
	free(mem);
}

void *net_mem_malloc(unsigned long size)
{
	return malloc(size);
}

void *net_mem_calloc(unsigned long count, unsigned long size)
{
	return calloc(count, size);
}

void net_mem_free(void *mem)
{
	free(mem);
}

uint32_t net_random(void)
{
	return 4; /* randomness is not needed */
}

_Noreturn void net_lwip_assert(const char *message, const char *file, int line)
{
	fprintf(stderr, "lwIP: %s (%s:%d)\n", message, file, line);
	abort();
}

uint32_t net_isn(const ip_addr_t *local_ip, uint16_t local_port,
		 const ip_addr_t *remote_ip, uint16_t remote_port)
{
	return 0xffffff00u + local_port;
}

struct netif *net_route_src4(const ip4_addr_t *src, const ip4_addr_t *dest)
{
	return &here->netif;
}

int net_nd_in_network(const ip6_addr_t *ip, const ip6_addr_t *own)
{
	return 0;
}

struct netif *net_route_src6(const ip6_addr_t *src, const ip6_addr_t *dest)
{
	return NULL;
}

err_t net_segment_in(struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
		     uint16_t optlen, uint16_t opt1len, const uint8_t *opt2,
		     const struct pbuf *p)
{
	return ERR_OK;
}

uint32_t *net_segment_out(const struct tcp_pcb *pcb, const struct pbuf *p,
			  struct tcp_hdr *hdr, uint32_t *opts)
{
	return opts;
}

void net_udp_input(struct pbuf *p, struct netif *inp);
void net_udp_input(struct pbuf *p, struct netif *inp)
{
	udp_input(p, inp);
}

void net_tcp_input(struct pbuf *p, struct netif *inp);
void net_tcp_input(struct pbuf *p, struct netif *inp)
{
	tcp_input(p, inp);
}

err_t net_tcp_output(struct tcp_pcb *pcb);
err_t net_tcp_output(struct tcp_pcb *pcb)
{
	return tcp_output(pcb);
}

void net_rst_abort(void);
void net_rst_abort(void)
{
	fail();
}

void net_rst_reply(void);
void net_rst_reply(void)
{
	fail();
}

void net_rst_netif(void);
void net_rst_netif(void)
{
	fail();
}

/* ---- an echo ---- */

/* The server has PORT at its own end. */
static err_t on_data(struct tcp_pcb *pcb, struct pbuf *p)
{
	if (!p) {
		if (pcb->local_port != PORT)
			return ERR_OK; /* closed first */
		here->closed++;
		return tcp_close(pcb);
	}
	tcp_recved(pcb, p->tot_len);
	if (pcb->local_port == PORT) {
		if (tcp_write(pcb, p->payload, p->len, TCP_WRITE_FLAG_COPY))
			fail();
	} else {
		here->echoed += memcmp(p->payload, &here->number,
				       sizeof(here->number)) == 0;
		tcp_close(pcb);
	}
	pbuf_free(p);
	return ERR_OK;
}

err_t lwip_tcp_event(void *arg, struct tcp_pcb *pcb, enum lwip_event event,
		     struct pbuf *p, uint16_t size, err_t err)
{
	switch (event) {
	case LWIP_EVENT_ACCEPT:
		here->accepted++;
		break;
	case LWIP_EVENT_CONNECTED:
		here->connected++;
		return tcp_write(pcb, &here->number, sizeof(here->number),
				 TCP_WRITE_FLAG_COPY);
	case LWIP_EVENT_RECV:
		return on_data(pcb, p);
	case LWIP_EVENT_SENT:
	case LWIP_EVENT_POLL:
		break;
	case LWIP_EVENT_ERR:
		fail();
		break;
	}
	return ERR_OK;
}

/* The link: sent packets come back later. */
static err_t send_ip4(struct netif *netif, struct pbuf *p,
		      const ip4_addr_t *addr)
{
	struct pbuf *copy = pbuf_clone(PBUF_RAW, PBUF_RAM, p);

	if (!copy || here->n == ON_LINE)
		fail();
	here->line[(here->first + here->n++) % ON_LINE] = copy;
	return ERR_OK;
}

static err_t start_netif(struct netif *netif)
{
	netif->output = send_ip4;
	netif->mtu = 1500;
	netif->name[0] = 't';
	return ERR_OK;
}

static void run_line(void)
{
	struct tcp_pcb *next;

	for (unsigned round = 0; round < 20; round++) {
		while (here->n) {
			struct pbuf *p = here->line[here->first];

			here->first = (here->first + 1) % ON_LINE;
			here->n--;
			ip4_input(p, &here->netif);
		}
		for (struct tcp_pcb *pcb = tcp_active_pcbs; pcb; pcb = next) {
			next = pcb->next;
			tcp_output(pcb);
		}
		if (!here->n)
			tcp_tmr();
	}
}

static void connect_once(const ip_addr_t *addr, unsigned i)
{
	struct tcp_pcb *pcb = tcp_new();

	if (!pcb || tcp_bind(pcb, addr, (uint16_t)(20000 + i)) != ERR_OK ||
	    tcp_connect(pcb, addr, PORT, NULL) != ERR_OK)
		fail();
	run_line();
}

static void go_on_with(struct world *world)
{
	here = world;
	net_shard_distance = world->distance;
}

static void connect_half(unsigned first)
{
	ip_addr_t addr;

	ip_addr_copy(addr, here->netif.ip_addr);
	for (unsigned i = first; i < first + CONNECTIONS / 2; i++)
		connect_once(&addr, i);
}

static void *live_in_thread(void *arg)
{
	ip4_addr_t addr, mask;
	ip_addr_t any;

	go_on_with(arg);
	IP4_ADDR(&addr, 10, 0, (uint8_t)here->number, 1);
	IP4_ADDR(&mask, 255, 255, 255, 0);
	lwip_init();
	netif_add(&here->netif, &addr, &mask, NULL, NULL, start_netif,
		  ip4_input);
	netif_set_up(&here->netif);
	netif_set_link_up(&here->netif);
	ip_addr_copy_from_ip4(any, addr);
	here->listener = tcp_new();
	tcp_bind(here->listener, &any, PORT);
	here->listener = tcp_listen(here->listener);
	pthread_barrier_wait(here->barrier); /* the rest at the same time */
	connect_half(0);
	pthread_barrier_wait(here->barrier);
	go_on_with(here->other);
	connect_half(CONNECTIONS / 2);
	for (unsigned i = 0; i < 200 && (tcp_active_pcbs || tcp_tw_pcbs); i++)
		run_line();
	here->pcbs = &tcp_active_pcbs;
	pthread_barrier_wait(here->barrier); /* while both have addresses */
	if (tcp_active_pcbs || tcp_tw_pcbs || netif_list != &here->netif ||
	    netif_list->next || tcp_listen_pcbs.listen_pcbs->next)
		fail();
	tcp_close(here->listener);
	netif_remove(&here->netif);
	return NULL;
}

static void test_threads_share_no_lwip_state(void **state)
{
	pthread_t threads[THREADS];
	struct world worlds[THREADS] = {{0}};
	pthread_barrier_t barrier;

	pthread_barrier_init(&barrier, NULL, THREADS);
	for (unsigned i = 0; i < THREADS; i++) {
		worlds[i].number = i;
		worlds[i].barrier = &barrier;
		worlds[i].other = &worlds[1 - i];
		assert_int_equal(net_shard_copy_new(&worlds[i].distance), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL,
						live_in_thread, &worlds[i]),
				 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&barrier);
	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(worlds[i].accepted, CONNECTIONS);
		assert_int_equal(worlds[i].connected, CONNECTIONS);
		assert_int_equal(worlds[i].echoed, CONNECTIONS);
		assert_int_equal(worlds[i].closed, CONNECTIONS);
		assert_int_equal(worlds[i].n, 0);
		net_shard_copy_free(worlds[i].distance);
	}
	assert_ptr_not_equal(worlds[0].pcbs, worlds[1].pcbs);
	assert_null(tcp_active_pcbs); /* of this thread, which had none */
	assert_null(netif_list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_share_no_lwip_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
