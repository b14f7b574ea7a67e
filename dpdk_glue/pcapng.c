/*
 * Writes the blocks of a pcapng file.
 */
#include "dpdk_glue/pcapng.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <rte_ether.h>

#define SECTION		 0x0a0d0d0au
#define INTERFACE	 1u
#define PACKET		 6u
#define BYTE_ORDER_MAGIC 0x1a2b3c4du
#define ETHERNET	 1 /* LINKTYPE_ETHERNET */

/* Options, whose codes differ from block to block. */
#define SHB_USERAPPL 4
#define IF_NAME	     2
#define IF_MACADDR   6
#define IF_TSRESOL   9
#define EPB_FLAGS    2
#define EPB_QUEUE    6
#define PADDED(len)  (((len) + 3u) & ~3u) /* blocks are made of words */

#define INBOUND	 1u
#define OUTBOUND 2u

/* ---- section and interfaces ---- */

/* Under construction; `room` holds the longest, an interface's. */
struct block {
	uint32_t len;
	uint8_t room[64 + RTE_ETH_NAME_MAX_LEN];
};

static void append_bytes(struct block *block, const void *data, uint32_t len)
{
	assert(block->len + PADDED(len) <= sizeof(block->room));
	memcpy(block->room + block->len, data, len);
	memset(block->room + block->len + len, 0, PADDED(len) - len);
	block->len += PADDED(len);
}

static void append_option(struct block *block, uint16_t code, const void *value,
			  uint16_t len)
{
	const uint16_t head[] = {code, len};

	append_bytes(block, head, sizeof(head));
	append_bytes(block, value, len);
}

/* The length stands at both ends of a block, behind its type and at its end. */
static ssize_t write_block(int fd, struct block *block)
{
	uint32_t len = block->len + (uint32_t)sizeof(len);
	ssize_t written;

	memcpy(block->room + sizeof(uint32_t), &len, sizeof(len));
	append_bytes(block, &len, sizeof(len));
	written = write(fd, block->room, block->len);
	if (written < 0)
		return -errno;
	return written == (ssize_t)block->len ? written : -ENOSPC;
}

static ssize_t write_section(int fd)
{
	const struct {
		uint32_t type, len, byte_order;
		uint16_t major, minor;
		uint32_t section_len[2]; /* -1: up to the file's end */
	} head = {SECTION, 0, BYTE_ORDER_MAGIC, 1, 0, {UINT32_MAX, UINT32_MAX}};
	struct block block = {0};

	append_bytes(&block, &head, sizeof(head));
	append_option(&block, SHB_USERAPPL, "coronet", strlen("coronet"));
	append_option(&block, 0, "", 0);
	return write_block(fd, &block);
}

static ssize_t write_interface(int fd, uint32_t snap, uint16_t port)
{
	const struct {
		uint32_t type, len;
		uint16_t link_type, reserved;
		uint32_t snap;
	} head = {INTERFACE, 0, ETHERNET, 0, snap};
	const uint8_t nanoseconds = 9;
	char name[RTE_ETH_NAME_MAX_LEN];
	struct rte_ether_addr mac;
	struct block block = {0};

	append_bytes(&block, &head, sizeof(head));
	if (rte_eth_dev_get_name_by_port(port, name) == 0)
		append_option(&block, IF_NAME, name, (uint16_t)strlen(name));
	if (rte_eth_macaddr_get(port, &mac) == 0)
		append_option(&block, IF_MACADDR, &mac, sizeof(mac));
	append_option(&block, IF_TSRESOL, &nanoseconds, sizeof(nanoseconds));
	append_option(&block, 0, "", 0);
	return write_block(fd, &block);
}

ssize_t glue_pcapng_begin(int fd, uint32_t snap,
			  uint8_t interfaces[RTE_MAX_ETHPORTS])
{
	ssize_t bytes = write_section(fd);
	uint8_t n = 0;
	uint16_t port;

	memset(interfaces, GLUE_PCAPNG_NO_INTERFACE, RTE_MAX_ETHPORTS);
	RTE_ETH_FOREACH_DEV(port)
	{
		ssize_t more =
			bytes < 0 ? bytes : write_interface(fd, snap, port);

		bytes = more < 0 ? more : bytes + more;
		interfaces[port] = n++;
	}
	return bytes >= 0 && n == 0 ? -ENODEV : bytes;
}

/* ---- packets ---- */

struct packet_head {
	uint32_t type, len, interface, time_high, time_low, captured, original;
};

struct packet_tail {
	struct {
		uint16_t code, len;
		uint32_t value;
	} flags, queue;
	uint32_t end; /* of the options: code and length 0 */
	uint32_t len;
};

static_assert(sizeof(struct packet_head) == 28, "as pcapng has it");
static_assert(sizeof(struct packet_tail) == 24, "as pcapng has it");
static_assert(sizeof(struct packet_head) + RTE_VLAN_HLEN <=
		      RTE_PKTMBUF_HEADROOM,
	      "both are put before the frame");

uint16_t glue_pcapng_mbuf_bytes(uint32_t snap)
{
	return (uint16_t)(RTE_PKTMBUF_HEADROOM + PADDED(snap) +
			  sizeof(struct packet_tail));
}

/* Inserts the tag again, and cuts off what its four bytes push beyond snap. */
static bool put_tag_back(struct rte_mbuf **m, uint32_t snap)
{
	if (!((*m)->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) ||
	    rte_vlan_insert(m) != 0)
		return false;
	if ((*m)->pkt_len > snap)
		rte_pktmbuf_trim(*m, (uint16_t)((*m)->pkt_len - snap));
	return true;
}

/* Builds a block around the bytes that m has; there is room for it. */
static void add_block(struct rte_mbuf *m, uint32_t original,
		      const struct glue_pcapng_frame *frame)
{
	uint32_t captured = m->pkt_len, padding = PADDED(captured) - captured;
	uint32_t len = (uint32_t)(sizeof(struct packet_head) + captured +
				  padding + sizeof(struct packet_tail));
	const struct packet_head head = {
		.type = PACKET,
		.len = len,
		.interface = frame->interface,
		.time_high = (uint32_t)(frame->ns >> 32),
		.time_low = (uint32_t)frame->ns,
		.captured = captured,
		.original = original,
	};
	const struct packet_tail tail = {
		.flags = {EPB_FLAGS, 4, frame->outbound ? OUTBOUND : INBOUND},
		.queue = {EPB_QUEUE, 4, frame->queue},
		.len = len,
	};
	char *end = rte_pktmbuf_append(m, (uint16_t)(padding + sizeof(tail)));

	memset(end, 0, padding);
	memcpy(end + padding, &tail, sizeof(tail));
	memcpy(rte_pktmbuf_prepend(m, sizeof(head)), &head, sizeof(head));
}

struct rte_mbuf *glue_pcapng_copy(const struct rte_mbuf *m,
				  struct rte_mempool *pool, uint32_t snap,
				  const struct glue_pcapng_frame *frame)
{
	struct rte_mbuf *copy = rte_pktmbuf_copy(m, pool, 0, snap);
	uint32_t original = m->pkt_len;

	if (!copy)
		return NULL;
	if (put_tag_back(&copy, snap))
		original += RTE_VLAN_HLEN;
	add_block(copy, original, frame);
	return copy;
}
