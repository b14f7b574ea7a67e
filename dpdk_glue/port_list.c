/*
 * Lists the network cards and interfaces of this machine, each with the --link
 * to type or what to do before.
 */
#include "dpdk_glue/pci.h"
#include "dpdk_glue/port_priv.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_log.h>

#define CARDS_MAX    64
#define NETWORK_CARD "0x02" /* how the class of one begins */
#define LIST_MIB     64	    /* of memory for DPDK, which only looks at them */

struct card {
	struct glue_pci_device device;
	char why[512]; /* why it cannot be used now, or "" */
};

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* The names in a folder, sorted; 0 without one. The caller frees both. */
static int sorted_names(const char *root, const char *path,
			struct dirent ***names)
{
	char full[PATH_MAX];
	int n;

	snprintf(full, sizeof(full), "%s%s", root, path);
	n = scandir(full, names, is_visible, alphasort);
	return n < 0 ? 0 : n;
}

static void free_names(struct dirent **names, int n)
{
	while (n--)
		free(names[n]);
	free(names);
}

/* ---- cards ---- */

static void check_card(const char *root, struct card *card)
{
	const char *address = card->device.address;
	char prefix[64];
	size_t skip = 0;

	if (glue_pci_check(root, address, LIST_MIB, card->why,
			   sizeof(card->why)) == 0 &&
	    glue_pci_claim(root, address, card->why, sizeof(card->why)) == 0) {
		card->why[0] = '\0';
		return;
	}
	snprintf(prefix, sizeof(prefix), "link pci:%s: ", address);
	if (strncmp(card->why, prefix, strlen(prefix)) == 0)
		skip = strlen(prefix);
	memmove(card->why, card->why + skip, strlen(card->why + skip) + 1);
}

static unsigned find_cards(const char *root, struct card *cards)
{
	struct dirent **names = NULL;
	int n_names = sorted_names(root, "/sys/bus/pci/devices", &names);
	unsigned n = 0;

	for (int i = 0; i < n_names && n < CARDS_MAX; i++) {
		glue_pci_read(root, names[i]->d_name, &cards[n].device);
		if (strncmp(cards[n].device.class, NETWORK_CARD,
			    strlen(NETWORK_CARD)) != 0)
			continue;
		check_card(root, &cards[n]);
		n++;
	}
	free_names(names, n_names);
	return n;
}

/* DPDK probes cards that it can use; the others have a reason already. */
static void probe_cards(const char *root, struct card *cards, unsigned n)
{
	char mib[] = RTE_STR(LIST_MIB);
	char *argv[2 * CARDS_MAX + 8] = {"coronet",   "--no-telemetry",
					 "--no-huge", "--no-shconf",
					 "-m",	      mib};
	struct glue_captured log;
	char reason[256];
	uint16_t id;
	int argc = 6, rc;

	for (unsigned i = 0; i < n; i++)
		if (!cards[i].why[0]) {
			argv[argc++] = "-a";
			argv[argc++] = cards[i].device.address;
		}
	if (argc == 6)
		return;
	rte_log_set_global_level(RTE_LOG_WARNING);
	glue_capture_start(&log);
	rc = rte_eal_init(argc, argv);
	glue_capture_end(&log);
	glue_capture_line(&log, reason, sizeof(reason));
	for (unsigned i = 0; i < n; i++) {
		struct card *card = &cards[i];

		if (card->why[0])
			continue;
		if (rc < 0)
			snprintf(card->why, sizeof(card->why),
				 "DPDK did not start: %s", reason);
		else if (rte_eth_dev_get_port_by_name(card->device.address,
						      &id) < 0)
			glue_pci_explain(
				root, card->device.address,
				glue_capture_has(&log, card->device.address)
					? reason
					: "",
				card->why, sizeof(card->why));
	}
}

static const char *yes_no(bool yes)
{
	return yes ? "yes" : "no";
}

/* A driver that has just started sees the carrier up to a second later. */
static void await_carriers(const struct card *cards, unsigned n)
{
	static const struct timespec nap = {.tv_nsec = 50000000};
	struct rte_eth_link link;
	uint16_t id;

	for (unsigned i = 0, naps = 0; i < n && naps < 30;) {
		memset(&link, 0, sizeof(link));
		if (cards[i].why[0] ||
		    rte_eth_dev_get_port_by_name(cards[i].device.address, &id) <
			    0 ||
		    rte_eth_link_get_nowait(id, &link) < 0 ||
		    link.link_status == RTE_ETH_LINK_UP) {
			i++;
			continue;
		}
		nanosleep(&nap, NULL);
		naps++;
	}
}

static void print_carrier(FILE *out, uint16_t id)
{
	struct rte_eth_link link = {0};

	if (rte_eth_link_get_nowait(id, &link) < 0 ||
	    link.link_status != RTE_ETH_LINK_UP)
		fputs("    link down, or not known before the start\n", out);
	else if (link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN)
		fputs("    link up\n", out);
	else
		fprintf(out, "    link up, %u Mbit/s\n", link.link_speed);
}

static void print_abilities(FILE *out, const char *address)
{
	struct rte_eth_dev_info info;
	uint16_t id;

	if (rte_eth_dev_get_port_by_name(address, &id) < 0 ||
	    rte_eth_dev_info_get(id, &info) < 0)
		return;
	print_carrier(out, id);
	fprintf(out,
		"    queues at most: %u; checksums: %s; TSO: %s; RSS: %s\n",
		glue_usable_queues(&info, GLUE_MAX_SHARDS),
		yes_no(info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_TCP_CKSUM),
		yes_no(info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_TCP_TSO),
		yes_no(info.flow_type_rss_offloads != 0));
}

/* ---- interfaces ---- */

/* Reads a number that sysfs has of an interface; -1: it has none. */
static long number_of(const char *root, const char *interface, const char *file)
{
	char full[PATH_MAX];
	long number = -1;
	FILE *in;

	snprintf(full, sizeof(full), "%s/sys/class/net/%s/%s", root, interface,
		 file);
	in = fopen(full, "re");
	if (!in)
		return -1;
	if (fscanf(in, "%ld", &number) != 1)
		number = -1;
	fclose(in);
	return number;
}

static unsigned rx_queues(const char *root, const char *interface)
{
	struct dirent **names = NULL;
	char path[64];
	unsigned found = 0;
	int n;

	snprintf(path, sizeof(path), "/sys/class/net/%.15s/queues", interface);
	n = sorted_names(root, path, &names);
	for (int i = 0; i < n; i++)
		found += strncmp(names[i]->d_name, "rx-", 3) == 0;
	free_names(names, n);
	return found;
}

static void print_interface(FILE *out, const char *root, const char *interface)
{
	long up = number_of(root, interface, "carrier");
	long speed = number_of(root, interface, "speed");
	unsigned queues = rx_queues(root, interface);

	fprintf(out, "interface %s, link %s", interface,
		up == 1	  ? "up"
		: up == 0 ? "down"
			  : "off");
	if (speed > 0)
		fprintf(out, ", %ld Mbit/s", speed);
	if (queues)
		fprintf(out, ", %u receive queue%s", queues,
			queues == 1 ? "" : "s");
	fprintf(out, "\n    --link af_packet:%s or --link af_xdp:%s, as root\n",
		interface, interface);
}

static void print_card(FILE *out, const char *root, const struct card *card)
{
	const struct glue_pci_device *device = &card->device;

	fprintf(out, "%s %.6s:%.6s, driver %s", device->address, device->vendor,
		device->device, device->driver[0] ? device->driver : "none");
	if (device->node >= 0)
		fprintf(out, ", NUMA node %d", device->node);
	fputc('\n', out);
	if (!card->why[0]) {
		print_abilities(out, device->address);
		fprintf(out, "    --link pci:%s\n", device->address);
	} else {
		fprintf(out, "    %s\n", card->why);
	}
	if (device->interface[0]) {
		fputs("  ", out);
		print_interface(out, root, device->interface);
	}
}

static bool is_of_card(const char *interface, const struct card *cards,
		       unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (strcmp(cards[i].device.interface, interface) == 0)
			return true;
	return false;
}

static void print_other(FILE *out, const char *root, const char *name,
			const struct card *cards, unsigned n_cards)
{
	if (strcmp(name, "lo") != 0 && !is_of_card(name, cards, n_cards))
		print_interface(out, root, name);
}

/* sysfs may be that of another network namespace: it only adds details. */
static void print_here(FILE *out, const struct card *cards, unsigned n_cards)
{
	struct if_nameindex *list = if_nameindex();

	for (const struct if_nameindex *one = list; one && one->if_name; one++)
		print_other(out, "", one->if_name, cards, n_cards);
	if_freenameindex(list);
}

static void print_there(FILE *out, const char *root, const struct card *cards,
			unsigned n_cards)
{
	struct dirent **names = NULL;
	int n = sorted_names(root, "/sys/class/net", &names);

	for (int i = 0; i < n; i++)
		print_other(out, root, names[i]->d_name, cards, n_cards);
	free_names(names, n);
}

int glue_port_list(const char *root, FILE *out)
{
	struct card *cards = calloc(CARDS_MAX, sizeof(*cards));
	unsigned n;

	if (!cards)
		return -ENOMEM;
	n = find_cards(root, cards);
	if (root[0] == '\0') {
		probe_cards(root, cards, n);
		await_carriers(cards, n);
	}
	for (unsigned i = 0; i < n; i++)
		print_card(out, root, &cards[i]);
	if (n == 0)
		fputs("no network card on the PCI bus\n", out);
	if (root[0] == '\0')
		print_here(out, cards, n);
	else
		print_there(out, root, cards, n);
	fputs("on any machine, without root: --link "
	      "memif:/tmp/e.sock,role=server\n",
	      out);
	glue_pci_release();
	free(cards);
	return 0;
}
