#include "dpdk_glue/memif.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>

#include "dpdk_glue/memif_relay.h"

#define RESTORE_MS 250	      /* a removed socket is back after that */
#define WATCH_US   200000     /* between two looks at a client's link */
#define SHAKE_NS   2000000000 /* what a handshake may take */

/* ---- server ---- */

struct service {
	struct glue_relay relay;
	pthread_t thread;
	int wake_fd;
	bool stop; /* atomic */
};

static struct service *services[GLUE_MAX_LINKS];
static unsigned n_services;

static void *run_relay(void *arg)
{
	struct service *service = arg;

	while (!__atomic_load_n(&service->stop, __ATOMIC_ACQUIRE))
		glue_relay_step(&service->relay, service->wake_fd, RESTORE_MS);
	glue_relay_step(&service->relay, -1, 0); /* DPDK's last message */
	return NULL;
}

int glue_memif_serve(const char *path, const char *inner_path)
{
	struct service *service = calloc(1, sizeof(*service));
	int err;

	if (!service || n_services == GLUE_MAX_LINKS) {
		free(service);
		return -ENOMEM;
	}
	err = glue_relay_open(&service->relay, path, inner_path);
	if (err < 0)
		goto free_service;
	service->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (service->wake_fd < 0) {
		err = -errno;
		goto close_relay;
	}
	err = -abs(rte_ctrl_thread_create(&service->thread, "memif-relay", NULL,
					  run_relay, service));
	if (err < 0)
		goto close_wake;
	services[n_services++] = service;
	return 0;

close_wake:
	close(service->wake_fd);
close_relay:
	glue_relay_close(&service->relay);
free_service:
	free(service);
	return err;
}

void glue_memif_unserve(void)
{
	while (n_services) {
		struct service *service = services[--n_services];

		__atomic_store_n(&service->stop, true, __ATOMIC_RELEASE);
		eventfd_write(service->wake_fd, 1);
		pthread_join(service->thread, NULL);
		glue_relay_close(&service->relay);
		close(service->wake_fd);
		free(service);
	}
}

/* ---- client ---- */

/*
 * On DPDK's interrupt thread, which handles memif's messages too: none of them
 * comes in between. A port that was not started again stays away.
 */
static void restart(struct glue_port *port)
{
	__atomic_store_n(&port->away, true, __ATOMIC_RELAXED);
	glue_sync_wait();
	rte_eth_dev_stop(port->id);
	if (rte_eth_dev_start(port->id) == 0)
		__atomic_store_n(&port->away, false, __ATOMIC_RELEASE);
}

static void watch(void *arg)
{
	struct glue_port *port = arg;
	int64_t now_ns = glue_now_ns();

	/* Its own messages drive a handshake; cutting it off gains nothing. */
	if (glue_port_link_up(port)) {
		port->restarted_ns = 0;
	} else if ((!port->restarted_ns ||
		    now_ns - port->restarted_ns > SHAKE_NS) &&
		   !glue_socket_is_dead(port->server_path)) {
		restart(port);
		port->restarted_ns = now_ns;
	}
	rte_eal_alarm_set(WATCH_US, watch, port);
}

void glue_memif_watch(struct glue_port *port, const char *path)
{
	if (!glue_sync_works())
		return;
	port->server_path = path;
	port->restarted_ns = glue_now_ns(); /* its first handshake */
	rte_eal_alarm_set(WATCH_US, watch, port);
}

/* Waits for a look under way; one that set the alarm again is cancelled too. */
void glue_memif_unwatch(struct glue_port *port)
{
	if (port->server_path)
		rte_eal_alarm_cancel(watch, port);
}
