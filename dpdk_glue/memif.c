/*
 * Keeps memif links alive: runs the relay of a server, and reconnects a client.
 */
#include "dpdk_glue/memif.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_ethdev.h>

#include "dpdk_glue/memif_relay.h"
#include "dpdk_glue/thread.h"

#define RESTORE_MS 250	      /* a removed socket is back after that */
#define WATCH_US   200000     /* between two looks at a client's link */
#define SHAKE_US   1000	      /* the same during a handshake */
#define ASK_MS	   1000	      /* what a server may take to greet */
#define SHAKE_NS   2000000000 /* what a handshake may take */

/* ---- server ---- */

struct service {
	struct glue_relay relay;
	pthread_t thread;
	int wake_fd;
	bool stop;	/* atomic */
	unsigned index; /* of the link */
	pthread_mutex_t lock;
	struct glue_device *device;	 /* or NULL; under the lock */
	uint32_t empty[GLUE_MAX_SHARDS]; /* counts when a client left */
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

/* Waits until no burst is under way; DPDK maps the rings next. */
static void on_connect(void *arg)
{
	struct service *service = arg;

	pthread_mutex_lock(&service->lock);
	if (service->device) {
		__atomic_store_n(&service->device->n_active, 0,
				 __ATOMIC_RELEASE);
		glue_sync_wait();
	}
	pthread_mutex_unlock(&service->lock);
}

static void on_connected(void *arg, unsigned n_rings)
{
	struct service *service = arg;
	struct glue_device *device;

	pthread_mutex_lock(&service->lock);
	device = service->device;
	if (device)
		__atomic_store_n(&device->n_active,
				 (uint16_t)RTE_MIN(n_rings, device->n_queues),
				 __ATOMIC_RELEASE);
	pthread_mutex_unlock(&service->lock);
}

/* Returns how often glue_rx_burst() has found a queue empty. */
static uint32_t count_empty(const struct glue_device *device, unsigned queue)
{
	return __atomic_load_n(&device->empty[queue].n, __ATOMIC_RELAXED);
}

static void on_leave(void *arg)
{
	struct service *service = arg;
	const struct glue_device *device;

	pthread_mutex_lock(&service->lock);
	device = service->device;
	for (unsigned i = 0; device && i < device->n_queues; i++)
		service->empty[i] = count_empty(device, i);
	pthread_mutex_unlock(&service->lock);
}

/* One burst that found a queue empty may have begun before the client left. */
static bool has_read(void *arg)
{
	struct service *service = arg;
	const struct glue_device *device;
	bool read = true;

	pthread_mutex_lock(&service->lock);
	device = service->device;
	for (unsigned i = 0; device && i < device->n_active; i++)
		read &= count_empty(device, i) - service->empty[i] >= 2;
	pthread_mutex_unlock(&service->lock);
	return read;
}

static struct service *service_of(const struct glue_device *device)
{
	for (unsigned i = 0; i < n_services; i++)
		if (services[i]->index == device->index)
			return services[i];
	return NULL;
}

static void set_device(struct service *service, struct glue_device *device)
{
	if (!service)
		return;
	pthread_mutex_lock(&service->lock);
	service->device = device;
	pthread_mutex_unlock(&service->lock);
}

void glue_memif_attach(struct glue_device *device)
{
	set_device(service_of(device), device);
}

void glue_memif_detach(struct glue_device *device)
{
	set_device(service_of(device), NULL);
}

unsigned glue_memif_ask(const char *path)
{
	return glue_relay_ask(path, ASK_MS);
}

int glue_memif_serve(unsigned index, const char *path, const char *inner_path,
		     mode_t mode, unsigned n_queues)
{
	struct service *service = calloc(1, sizeof(*service));
	int err;

	if (!service || n_services == GLUE_MAX_LINKS) {
		free(service);
		return -ENOMEM;
	}
	service->index = index;
	pthread_mutex_init(&service->lock, NULL);
	err = glue_relay_open(&service->relay, path, inner_path, mode);
	if (err < 0)
		goto free_service;
	service->relay.n_queues = n_queues;
	service->relay.on_connect = on_connect;
	service->relay.on_connected = on_connected;
	service->relay.on_leave = on_leave;
	service->relay.has_read = has_read;
	service->relay.arg = service;
	service->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (service->wake_fd < 0) {
		err = -errno;
		goto close_relay;
	}
	err = glue_thread_start(&service->thread, "memif-relay", run_relay,
				service);
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

static int start_client(const struct glue_device *device)
{
	static const struct timespec nap = {.tv_nsec = GLUE_SERVER_RETRY_MS *
						       1000000};
	int64_t until_ns = glue_now_ns() + GLUE_SERVER_MS * INT64_C(1000000);
	int rc = rte_eth_dev_start(device->id), why;

	while (rc < 0 && glue_now_ns() < until_ns) {
		nanosleep(&nap, NULL);
		rc = rte_eth_dev_start(device->id);
	}
	/* DPDK returns -1, whatever kept it from connecting. */
	why = rc < 0 ? glue_socket_probe(device->link->name) : 0;
	return why < 0 ? why : rc;
}

int glue_memif_start(const struct glue_device *device, char *err,
		     size_t err_len)
{
	bool client =
		device->link->kind == GLUE_LINK_MEMIF && !device->link->server;
	int rc = client ? start_client(device) : rte_eth_dev_start(device->id);

	if (rc < 0)
		return glue_fail(err, err_len, rc, "port start: %s%s",
				 rte_strerror(-rc),
				 client ? "; start its server (role=server) "
					  "or name its path"
					: "");
	return 0;
}

/*
 * A server that was started again may have another number of queues than the
 * last one, and refuses clients that have more.
 */
static void adapt_queues(struct glue_device *device)
{
	unsigned has = glue_memif_ask(device->server_path);
	uint16_t n = (uint16_t)RTE_MIN(has, device->n_queues);
	char err[256];
	int rc;

	if (n == 0 || n == device->n_client_queues ||
	    !glue_device_enter(device))
		return;
	rc = glue_port_set_queues(device, n, err, sizeof(err));
	glue_device_leave(device);
	if (rc < 0) {
		glue_log_line("link memif:%s: %s", device->link->name, err);
		return;
	}
	device->n_client_queues = n;
	glue_log_line("link memif:%s: using %u of %u queues, since the server "
		      "has %u",
		      device->link->name, n, device->n_queues, has);
}

/*
 * Runs on DPDK's interrupt thread, which handles memif's messages too: none of
 * them comes in between. The queues rest until the link is up, as a server's
 * do; those of a port that was not started again rest too.
 */
static void restart_device(struct glue_device *device)
{
	__atomic_store_n(&device->n_active, 0, __ATOMIC_RELAXED);
	glue_sync_wait();
	rte_eth_dev_stop(device->id);
	if (device->n_queues > 1)
		adapt_queues(device);
	rte_eth_dev_start(device->id);
}

static bool link_up(const struct glue_device *device)
{
	struct rte_eth_link link = {0};

	return rte_eth_link_get_nowait(device->id, &link) == 0 &&
	       link.link_status == RTE_ETH_LINK_UP;
}

static void watch_peer(void *arg)
{
	struct glue_device *device = arg;
	int64_t now_ns = glue_now_ns();
	bool shakes = device->restarted_ns &&
		      now_ns - device->restarted_ns <= SHAKE_NS;

	/* Its own messages drive a handshake; cutting it off gains nothing. */
	if (link_up(device)) {
		device->restarted_ns = 0;
		__atomic_store_n(&device->n_active, device->n_client_queues,
				 __ATOMIC_RELEASE);
		shakes = false;
	} else if (!shakes && !glue_socket_is_dead(device->server_path)) {
		restart_device(device);
		device->restarted_ns = now_ns;
		shakes = true;
	}
	rte_eal_alarm_set(shakes ? SHAKE_US : WATCH_US, watch_peer, device);
}

void glue_memif_watch(struct glue_device *device, const char *path)
{
	if (!glue_sync_works())
		return;
	__atomic_store_n(&device->n_active, 0, __ATOMIC_RELAXED);
	device->server_path = path;
	device->n_client_queues = device->n_queues;
	device->restarted_ns = glue_now_ns(); /* its first handshake */
	rte_eal_alarm_set(SHAKE_US, watch_peer, device);
}

/* Waits for a look under way; one that set the alarm again is cancelled too. */
void glue_memif_unwatch(struct glue_device *device)
{
	if (device->server_path)
		rte_eal_alarm_cancel(watch_peer, device);
}

/* ---- closing ---- */

static void close_here(void *arg)
{
	uint16_t *id = arg;

	rte_eth_dev_stop(*id);
	rte_eth_dev_close(*id);
}

void glue_memif_close(struct glue_device *device)
{
	glue_on_interrupt_thread(close_here, &device->id);
}
