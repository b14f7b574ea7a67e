/*
 * Links: the counters of all shards' ports and of DPDK's drivers.
 *
 * A driver may take long to return its counters, so they are read on the
 * control thread, as in DPDK's own telemetry. Ports are open while this thread
 * runs.
 */
#include "netstack/control/control_priv.h"

#include <coronet/net_control.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_XSTATS 192u

struct port_row {
	struct glue_port *glue;
	struct glue_port_stats stats;
	unsigned frames, frames_free;
};

struct ports {
	unsigned n;
	struct port_row rows[NET_MAX_LINKS];
};

static bool ports_step(void *data)
{
	struct ports *all = data;

	all->n = net_here()->n_ports;
	for (unsigned i = 0; i < all->n; i++) {
		struct port_row *row = &all->rows[i];

		row->glue = net_here()->ports[i].glue;
		glue_port_stats(row->glue, &row->stats);
		row->frames = glue_port_frames(row->glue);
		row->frames_free = glue_port_frames_free(row->glue);
	}
	return true;
}

static cJSON *port_json(unsigned shard, const struct port_row *row)
{
	const struct glue_port_stats *s = &row->stats;
	cJSON *to = cJSON_CreateObject();

	net_control_number(to, "shard", shard);
	net_control_number(to, "rx_frames", s->rx_frames);
	net_control_number(to, "rx_bytes", s->rx_bytes);
	net_control_number(to, "rx_bad_frame", s->rx_bad_frame);
	net_control_number(to, "rx_bad_csum", s->rx_bad_csum);
	net_control_number(to, "rx_refused", s->rx_refused);
	net_control_number(to, "rx_other_vlan", s->rx_other_vlan);
	net_control_number(to, "rx_missed", s->rx_missed);
	net_control_number(to, "rx_handed_over", s->rx_handed_over);
	net_control_number(to, "rx_hand_over_full", s->rx_hand_over_full);
	net_control_number(to, "rx_taken_over", s->rx_taken_over);
	net_control_number(to, "tx_frames", s->tx_frames);
	net_control_number(to, "tx_bytes", s->tx_bytes);
	net_control_number(to, "tx_no_frame", s->tx_no_frame);
	net_control_number(to, "tx_busy", s->tx_busy);
	net_control_number(to, "tx_tso", s->tx_tso);
	net_control_number(to, "tx_dropped", s->tx_dropped);
	net_control_number(to, "frames", row->frames);
	net_control_number(to, "frames_free", row->frames_free);
	return to;
}

static void add_xstats(cJSON *link, struct glue_port *port)
{
	struct glue_xstat *stats = calloc(MAX_XSTATS, sizeof(*stats));
	cJSON *to = cJSON_AddObjectToObject(link, "xstats");
	unsigned n = stats ? glue_port_xstats(port, stats, MAX_XSTATS) : 0;

	for (unsigned i = 0; i < n; i++)
		net_control_number(to, stats[i].name, stats[i].value);
	free(stats);
}

static cJSON *link_json(unsigned index, const struct port_row *row)
{
	struct glue_port_info info;
	cJSON *to = cJSON_CreateObject();
	char mac[24];

	glue_port_info(row->glue, &info);
	snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x", info.mac[0],
		 info.mac[1], info.mac[2], info.mac[3], info.mac[4],
		 info.mac[5]);
	net_control_number(to, "link", index);
	cJSON_AddStringToObject(to, "name", info.link);
	cJSON_AddStringToObject(to, "driver", info.driver);
	cJSON_AddStringToObject(to, "mac", mac);
	cJSON_AddStringToObject(to, "state", info.up ? "up" : "down");
	if (info.watched)
		net_control_number(to, "carrier_losses", info.carrier_losses);
	if (info.sender[0]) {
		cJSON_AddStringToObject(to, "sender", info.sender);
		net_control_number(to, "sender_changes", info.sender_changes);
	}
	net_control_number(to, "mtu", info.mtu);
	net_control_number(to, "queues", info.queues);
	if (info.speed_mbps)
		net_control_number(to, "speed_mbps", info.speed_mbps);
	cJSON_AddBoolToObject(to, "rss", info.rss);
	cJSON_AddBoolToObject(to, "hw_csum", info.hw_csum);
	cJSON_AddBoolToObject(to, "tso", info.tso);
	cJSON_AddArrayToObject(to, "ports");
	add_xstats(to, row->glue);
	return to;
}

/* Shard 0's ports make the links; each shard adds its own to them. */
static void add_links(cJSON *links, unsigned shard, const struct ports *all)
{
	for (unsigned i = 0; i < all->n; i++) {
		cJSON *link;

		if (shard == 0)
			cJSON_AddItemToArray(links,
					     link_json(i, &all->rows[i]));
		link = cJSON_GetArrayItem(links, (int)i);
		cJSON_AddItemToArray(cJSON_GetObjectItem(link, "ports"),
				     port_json(shard, &all->rows[i]));
	}
}

/* ---- metrics ---- */

#define LABEL_BYTES (2 * sizeof(((struct glue_port_info *)0)->link) + 16)

/* Writes `link="NAME"`, with the escapes of Prometheus's text format. */
static void link_label(const char *name, char label[LABEL_BYTES])
{
	char *to = stpcpy(label, "link=\"");

	for (; *name; name++) {
		if (strchr("\"\\\n", *name))
			*to++ = '\\';
		*to++ = *name;
		if (*name == '\n')
			to[-1] = 'n';
	}
	strcpy(to, "\"");
}

static void write_links(struct net_metrics *page, const struct ports *all)
{
	struct glue_port_info infos[NET_MAX_LINKS];
	char label[LABEL_BYTES];

	net_metric(page, "coronet_link_up", NET_GAUGE,
		   "1 while the link has a carrier.");
	for (unsigned i = 0; i < all->n; i++) {
		glue_port_info(all->rows[i].glue, &infos[i]);
		link_label(infos[i].link, label);
		net_metric_value(page, label, infos[i].up);
	}
	net_metric(page, "coronet_link_carrier_losses_total", NET_COUNTER,
		   "Times that a pci, port or bond link has lost its carrier.");
	for (unsigned i = 0; i < all->n; i++) {
		link_label(infos[i].link, label);
		if (infos[i].watched)
			net_metric_value(page, label, infos[i].carrier_losses);
	}
	net_metric(
		page, "coronet_link_sender_changes_total", NET_COUNTER,
		"Times that an active-backup bond changed to another member.");
	for (unsigned i = 0; i < all->n; i++) {
		link_label(infos[i].link, label);
		if (infos[i].sender[0])
			net_metric_value(page, label, infos[i].sender_changes);
	}
}

void net_links_metrics(struct net_metrics *page)
{
	struct net_ask *ask = net_ask_new(ports_step, sizeof(struct ports));

	if (!ask)
		return;
	if (net_ask_run(ask, 0) == 0)
		write_links(page, (void *)ask->data);
	net_ask_put(ask);
}

/* ---- the command ---- */

static cJSON *list_links(const char *params)
{
	unsigned n = net_ask_shards();
	cJSON *all = cJSON_CreateObject();
	cJSON *links = cJSON_AddArrayToObject(all, "links");
	int err = n ? 0 : -EAGAIN;
	unsigned i;

	for (i = 0; i < n && err == 0; i++) {
		struct net_ask *ask =
			net_ask_new(ports_step, sizeof(struct ports));

		err = ask ? net_ask_run(ask, i) : -ENOMEM;
		if (err == 0)
			add_links(links, i, (void *)ask->data);
		if (ask)
			net_ask_put(ask);
	}
	if (err == 0)
		return all;
	cJSON_Delete(all);
	return net_control_ask_error(i ? i - 1 : 0, err);
}

const struct net_command net_link_commands[] = {
	{"/coronet/links", "Links: ports, queues and the driver's counters",
	 list_links},
	{0},
};
