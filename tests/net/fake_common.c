/*
 * Common parts of every fake of dpdk_glue: an EAL that is always initialized, a
 * port that is always up, and flows that all belong to one shard.
 */
#include <stdio.h>
#include <string.h>

#include "dpdk_glue/glue.h"
#include "tests/net/fake_glue.h"
#include "dpdk_glue/pcap.h"

uint16_t glue_flow_fold(const void *addr_a, const void *addr_b,
			unsigned addr_len)
{
	return 0;
}

uint64_t glue_links_caps(void)
{
	return 0;
}

int glue_caps_hold(void)
{
	return 0;
}

int glue_caps_keep(uint64_t caps)
{
	return 0;
}

bool glue_link_needs_root(const struct glue_link *link)
{
	return false;
}

_Thread_local unsigned fake_flow_shard;

unsigned glue_flow_shard(uint16_t fold, uint16_t port_a, uint16_t port_b)
{
	return fake_flow_shard;
}

int glue_thread_enter(unsigned shard, char *err, size_t err_len)
{
	return 0;
}

unsigned glue_thread_hand_over(void)
{
	return 0;
}

void glue_thread_take_over(unsigned number)
{
}

void glue_thread_leave(void)
{
}

unsigned glue_link_shards_mem_mib(const struct glue_link *link,
				  unsigned n_shards)
{
	return 64 * n_shards;
}

int glue_port_list(const char *root, FILE *out)
{
	(void)root;
	(void)out;
	return 0;
}

int glue_eal_start(const struct glue_eal_conf *conf, char *err, size_t err_len)
{
	return 0;
}

void glue_eal_stop(void)
{
}

bool glue_eal_huge(void)
{
	return false;
}

bool glue_port_link_up(struct glue_port *port)
{
	return true;
}

unsigned glue_port_wake_fds(const struct glue_port *port, int *fds,
			    unsigned max)
{
	return 0;
}

bool glue_tx_pending(const struct glue_port *port)
{
	return false;
}

bool glue_port_hw_csum(const struct glue_port *port)
{
	return true;
}

_Thread_local void (*fake_on_flush)(void);
void glue_port_info(struct glue_port *port, struct glue_port_info *out)
{
	*out = (struct glue_port_info){.link = "ring:fake",
				       .driver = "fake",
				       .mtu = 1500,
				       .up = true,
				       .watched = true,
				       .carrier_losses = 3};
}

unsigned glue_port_xstats(struct glue_port *port, struct glue_xstat *out,
			  unsigned max)
{
	out[0] = (struct glue_xstat){"rx_good_packets", 7};
	return 1;
}

unsigned glue_tx_flush(struct glue_port *port)
{
	if (fake_on_flush)
		fake_on_flush();
	return 0;
}

unsigned glue_link_mem_mib(const struct glue_link *link)
{
	return 64;
}

uint64_t glue_port_no_frame(const struct glue_port *port)
{
	return 0;
}

uint64_t glue_port_untrusted(const struct glue_port *port)
{
	return 0;
}

_Thread_local int fake_frames_spare = -1;
_Thread_local bool fake_frames_exhausted;
_Thread_local const struct glue_port *fake_exhausted_port;

unsigned glue_port_frames_spare(struct glue_port *port)
{
	return fake_frames_spare < 0 ? glue_port_frames(port) / 2
				     : (unsigned)fake_frames_spare;
}

_Thread_local bool fake_no_carrier;

bool glue_port_has_carrier(const struct glue_port *port)
{
	return !fake_no_carrier;
}

uint64_t glue_port_empty_pools(const struct glue_port *port)
{
	return fake_frames_exhausted &&
	       (!fake_exhausted_port || port == fake_exhausted_port);
}

bool glue_frame_is_of(const struct glue_port *port, struct glue_frame *frame,
		      uint64_t pools)
{
	return pools != 0;
}

unsigned glue_port_frames_usable(const struct glue_port *port)
{
	return glue_port_frames_free(port);
}

_Thread_local struct glue_port_stats fake_port_stats;

void glue_port_stats(struct glue_port *port, struct glue_port_stats *out)
{
	*out = fake_port_stats;
}

/*
 * ---- pcap.h: records the latest request; a capture never ends by itself ----
 */

static struct glue_pcap_status pcap;

int glue_pcap_start(const struct glue_pcap_conf *conf, char *err,
		    size_t err_len)
{
	pcap = (struct glue_pcap_status){.end = GLUE_PCAP_RUNS};
	snprintf(pcap.path, sizeof(pcap.path), "%s", conf->path);
	return 0;
}

int glue_pcap_check(const struct glue_pcap_conf *conf, char *err,
		    size_t err_len)
{
	return 0;
}

void glue_pcap_stop(void)
{
	if (pcap.end == GLUE_PCAP_RUNS)
		pcap.end = GLUE_PCAP_STOPPED;
}

void glue_pcap_status(struct glue_pcap_status *out)
{
	*out = pcap;
}

void glue_pcap_close(void)
{
	glue_pcap_stop();
}
