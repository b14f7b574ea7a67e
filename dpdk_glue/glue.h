/*
 * dpdk_glue: everything coronet knows about DPDK.
 *
 * Links (what a user calls a NIC) become EAL arguments and ports; ports move
 * bursts of frames. Above this header nothing includes rte_*.
 *
 * A frame is an mbuf seen from outside: struct glue_frame lies in the mbuf's
 * private area, one cache line. Received frames are owned by the caller of
 * glue_rx() until glue_frame_free(); frames allocated for sending are owned by
 * the caller until glue_tx().
 *
 * Threads: EAL starts once per process, on the thread of shard 0. A shard is a
 * thread with a port of its own on every link; only its shard's thread uses a
 * port. glue_rx() returns the frames of the shard's own flows, through
 * whichever queue they arrived.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define GLUE_BURST	  32  /* frames in one RX or TX burst */
#define GLUE_MAX_LINKS	  8   /* links in a process */
#define GLUE_MAX_SHARDS	  64  /* shards in a process */
#define GLUE_BOND_MEMBERS 4   /* links in a bond */
#define GLUE_PATH_MAX	  108 /* sun_path: the longest UNIX socket path */
#define GLUE_MTU_MIN	  576
#define GLUE_MTU_MAX	  9000
#define GLUE_VLAN_MAX	  4094 /* 4095 is reserved (802.1Q 9.6) */

enum glue_link_kind {
	GLUE_LINK_MEMIF,
	GLUE_LINK_TAP,
	GLUE_LINK_VHOST,
	GLUE_LINK_AF_PACKET,
	GLUE_LINK_AF_XDP,
	GLUE_LINK_PCI,
	GLUE_LINK_PORT, /* any port of DPDK's, by its name */
	GLUE_LINK_BOND,
	GLUE_LINK_RING,
	GLUE_LINK_PCAP,
};

enum glue_csum_mode {
	GLUE_CSUM_AUTO, /* hardware on pci and port, software elsewhere */
	GLUE_CSUM_HW,
	GLUE_CSUM_SW,
	/*
	 * Software, but also accepts frames whose TCP or UDP checksum the
	 * sender left to its NIC (af_packet, af_xdp): their field has the sum
	 * of the pseudo-header.
	 */
	GLUE_CSUM_TRUST,
};

enum glue_tso_mode {
	GLUE_TSO_AUTO, /* on for pci and port, if supported */
	GLUE_TSO_ON,
	GLUE_TSO_OFF,
};

/* A link as the user wrote it, checked. Plain data, copied freely. */
struct glue_link {
	enum glue_link_kind kind;
	char name[GLUE_PATH_MAX];  /* path, interface, address, port */
	char name2[GLUE_PATH_MAX]; /* pcap: the file written; bond: members */
	bool server;	     /* memif, vhost: this side makes the socket */
	bool lacp;	     /* bond: 802.3ad, not active-backup */
	bool on_ports;	     /* bond: all members are pci or port */
	uint16_t mode;	     /* of a memif server's socket; 0: only the owner */
	unsigned queue_size; /* descriptors a ring; 0: the default */
	unsigned queues; /* queue pairs; 0: as many as shards and port allow */
	enum glue_csum_mode csum;
	enum glue_tso_mode tso;
	uint16_t vlan;	/* VID of all its frames, 1 to 4094; 0: untagged */
	uint8_t mac[6]; /* all zero: the port's own */
};

/*
 * Reads "KIND:NAME[,key=value...]" into *out. Keys: role=server|client
 * (memif, vhost), mode=OCTAL (memif servers, 600 to 777), queue=N (a power of
 * two, 64 to 16384), queues=N (1 to what the kind of link has at most), vlan=N
 * (1 to 4094), csum=auto|hw|sw|trust, tso=auto|on|off, mac=xx:xx:xx:xx:xx:xx.
 *
 * A bond takes members=A+B, two to GLUE_BOND_MEMBERS links (tap, af_packet,
 * pci, port) without keys of their own, and mode=active-backup|802.3ad. With
 * active-backup one member sends, until it loses its carrier; all receive. With
 * 802.3ad (IEEE 802.1AX) the switch takes part, and each connection goes by one
 * member.
 *
 * A link with vlan=N takes only frames with that 802.1Q tag, whatever their
 * priority, and puts it on all that it sends, with priority 0; the stack above
 * sees neither. Any other link takes frames without a tag, and those whose tag
 * names a priority alone (VID 0). The rest is dropped and counted
 * (rx_other_vlan).
 * Returns 0, or -EINVAL with one clear line in err (at most err_len bytes).
 */
int glue_link_parse(const char *text, struct glue_link *out, char *err,
		    size_t err_len);
/* The keys of all kinds, for --help. */
#define GLUE_LINK_KEYS                                                         \
	"role=, mode=, members=, queue=, queues=, vlan=, csum=, tso=, mac="

/* MiB for the frames and rings of a link, with DPDK's overhead. */
unsigned glue_link_mem_mib(const struct glue_link *link);

/* glue_link_mem_mib() for n_shards, each of which has a pool of frames. */
unsigned glue_link_shards_mem_mib(const struct glue_link *link,
				  unsigned n_shards);

/*
 * Lists this machine's network cards and interfaces, each with the --link to
 * use, or what to do before it can be used. root: a folder with another sysfs;
 * "": the machine's, for which DPDK is started to find the cards that it can
 * use, and the program must end afterwards. Returns 0 or -ENOMEM.
 */
int glue_port_list(const char *root, FILE *out);

/* The kind's name as written on the command line. Static. */
const char *glue_link_kind_name(enum glue_link_kind kind);

/* The arguments of glue_eal_start(). */
struct glue_eal_conf {
	const struct glue_link *links; /* borrowed during the call */
	unsigned n_links;
	int lcore; /* CPU to pin the caller to; -1: not pinned */
	/* Instead of lcore, the CPUs of the first n_lcores shards; or NULL */
	const int *lcores; /* borrowed during the call */
	unsigned n_lcores;
	/* Shards, GLUE_MAX_SHARDS at most; 0: n_lcores, or 1. Those beyond
	   n_lcores are not pinned. */
	unsigned n_shards;
	bool huge_off; /* never use hugepages */
	/* The name under which other DPDK processes, such as dpdk-dumpcap, may
	 * attach (EAL's --file-prefix); NULL: no process may. Needs hugepages
	 * of a mounted hugetlbfs. */
	const char *prefix; /* borrowed during the call */
	unsigned mtu;	    /* of every link, bytes of IP packet */
	unsigned mem_mib;   /* memory for mbufs and rings, without hugepages */
	char *const *extra; /* EAL arguments after "--", borrowed */
	unsigned n_extra;
	/* The user to whom sockets of memif and vhost belong; 0: root's, or
	 * that of the process */
	uid_t uid;
	gid_t gid;
	/* DPDK's own lines once it runs, from any thread; NULL: stderr */
	void (*log)(unsigned level, const char *text, size_t len);
};

/*
 * Starts EAL with what the links need, and pins the calling thread if conf says
 * so. Uses hugepages if the machine has free ones and huge_off is false.
 * Returns 0 or -errno with one clear line in err: -EINVAL (no such CPU, no
 * link), -EIO (EAL did not start), -ENOENT, -EACCES, -EPERM, -EADDRINUSE,
 * -EBUSY or -ENODEV (a link), -EALREADY (a second call), -ENOMEM (also: no
 * hugepages for prefix).
 */
int glue_eal_start(const struct glue_eal_conf *conf, char *err, size_t err_len);

/*
 * Makes the calling thread that of a shard, until glue_thread_leave(), and pins
 * it to the shard's lcore if there is one. Called once per thread, before the
 * shard opens its ports. The thread that started EAL is shard 0's already.
 * Returns 0 or -errno with one clear line in err: -EINVAL (no such shard),
 * -ENOMEM (DPDK has no room for another thread).
 */
int glue_thread_enter(unsigned shard, char *err, size_t err_len);

/* Called on a thread that has entered and closed its ports, before it ends. */
void glue_thread_leave(void);

/*
 * Move a shard to another thread. glue_thread_hand_over() makes the calling
 * thread leave the shard and returns a number, with which another thread enters
 * it by glue_thread_take_over(). Only one thread at a time may hold the number.
 */
unsigned glue_thread_hand_over(void);
void glue_thread_take_over(unsigned number);

/* Frees what EAL holds. Ports must be closed before. */
void glue_eal_stop(void);

/*
 * Like munmap(2), but on a thread that does not poll it first waits until the
 * bursts under way have ended (burst_sync.h). Exported for coronet-run.so,
 * which replaces libc's munmap() where libcoronet cannot.
 */
__attribute__((visibility("default"))) int glue_unmap(void *addr, size_t len);

/* Returns whether a card needs root as long as it is open. */
bool glue_link_needs_root(const struct glue_link *link);
/*
 * For a process that becomes another user than root, while EAL runs:
 * glue_links_caps() returns the capabilities (a bit each) that the links need
 * from then on. glue_caps_hold() is called before, and lets DPDK's interrupt
 * thread keep capabilities; glue_caps_keep() after that, and removes all but
 * these. Called outside DPDK's threads. They return 0 or -errno.
 */
uint64_t glue_links_caps(void);
int glue_caps_hold(void);
int glue_caps_keep(uint64_t caps);

/* Returns whether EAL runs on hugepages. */
bool glue_eal_huge(void);

enum glue_frame_flags {
	GLUE_FRAME_IP4 = 1,	 /* l3_off is an IPv4 header */
	GLUE_FRAME_IP6 = 2,	 /* l3_off is an IPv6 header */
	GLUE_FRAME_TCP = 4,	 /* l4_off is a whole TCP header */
	GLUE_FRAME_UDP = 8,	 /* l4_off is a whole UDP header */
	GLUE_FRAME_MCAST = 16,	 /* destination MAC is a group address */
	GLUE_FRAME_CSUM_OK = 32, /* every checksum in it has been verified */
	GLUE_FRAME_ICMP = 64,	 /* l4_off is a message of ICMP or ICMPv6 */
	GLUE_FRAME_ARP = 128,	 /* l3_off is a whole ARP packet */
	/*
	 * Refused by glue_check(), and kept for the kernel. The other flags
	 * repeat what the headers claim; no checksum was verified. With
	 * GLUE_FRAME_TCP it is the first fragment of a segment, whose ports are
	 * at l4_off.
	 */
	GLUE_FRAME_OTHER = 256,
	GLUE_FRAME_IGMP = 512, /* l4_off is a query or report of IGMP */
};

/*
 * One segment of a frame. `user` belongs to the owner of the frame: the stack
 * keeps its pbuf there.
 */
struct glue_frame {
	uint8_t *data;		 /* first byte of this segment */
	struct glue_frame *next; /* next segment or NULL */
	uint16_t seg_len;	 /* bytes in this segment */
	uint16_t flags;		 /* enum glue_frame_flags, first segment */
	uint16_t l3_off;	 /* bytes from data to the IP header */
	uint16_t l4_off;	 /* bytes from data to TCP or UDP */
	uint64_t user[5];
};
_Static_assert(sizeof(struct glue_frame) == 64, "one cache line a frame");

struct glue_port;

struct glue_port_conf {
	unsigned mtu;	   /* bytes of IP packet, GLUE_MTU_MIN..MAX */
	unsigned n_frames; /* frames in each shard's pool; 0: the default */
	unsigned shard;	   /* the shard; 0 if there is only one */
};

/*
 * Opens a shard's port on links[index] as given to glue_eal_start(), on the
 * shard's thread. The first call opens the device with the queues and pools of
 * all shards and starts it; later calls ignore mtu and n_frames. A shard
 * without a queue of its own receives frames that others hand over, and sends
 * through their queues. The caller owns *out. Returns 0 or -errno with one
 * clear line in err: -ENODEV (no such port), -ENOMEM (pools), -EINVAL (MTU or
 * number of queues refused by the port, no such shard).
 */
int glue_port_open(unsigned index, const struct glue_port_conf *conf,
		   struct glue_port **out, char *err, size_t err_len);

/*
 * Closes one shard's port, in any order; closing the last one stops the device
 * and frees its pools. The caller must free all its frames before, including
 * those of other shards' pools.
 */
void glue_port_close(struct glue_port *port);

/*
 * Sets whether glue_rx() also returns frames that the stack refuses, marked
 * GLUE_FRAME_OTHER; false at first.
 */
void glue_port_keep_refused(struct glue_port *port, bool keeps);

/* The port's MAC: six bytes, borrowed, valid until the port closes. */
const uint8_t *glue_port_mac(const struct glue_port *port);

/* Returns whether the link is up. Not for the hot path. */
bool glue_port_link_up(struct glue_port *port);

/*
 * Returns whether the link had a carrier when that was last checked, which
 * happens several times a second; true for kinds of links whose carrier is not
 * watched (all but pci, port and bond). Cheap.
 */
bool glue_port_has_carrier(const struct glue_port *port);

/*
 * Fills fds with at most max descriptors that become readable when a frame
 * arrives; the port owns them. Returns how many; 0: the driver has none.
 */
unsigned glue_port_wake_fds(const struct glue_port *port, int *fds,
			    unsigned max);

/* Returns whether the port cuts TSO frames into segments itself. */
bool glue_port_tso(const struct glue_port *port);

/*
 * Queue pairs of the device; shards from this number on have none of their own.
 */
unsigned glue_port_queues(const struct glue_port *port);

/*
 * Returns whether the device spreads flows itself, by the rule of
 * glue_flow_shard().
 */
bool glue_port_rss(const struct glue_port *port);

/*
 * Returns how many frames were dropped because a virtual peer left their
 * checksums to its NIC.
 */
uint64_t glue_port_untrusted(const struct glue_port *port);

/* Returns whether the port computes and checks TCP/IP checksums itself. */
bool glue_port_hw_csum(const struct glue_port *port);

/*
 * The shard of a flow is RETA[Toeplitz hash of its 4-tuple], in both
 * directions; ICMP errors belong to the flow that they quote, everything else
 * to shard 0. Constant once EAL has started, on any thread.
 *
 * The hash depends only on the exclusive or of all 16-bit words of the tuple.
 * glue_flow_fold() returns that of two addresses of addr_len (4 or 16) bytes in
 * network byte order; ports are in host byte order. So a source port whose
 * replies reach this shard is found without hashing the addresses again. Of 128
 * consecutive ports, from a multiple of 128, each shard has 128 / shards or one
 * more.
 */
uint16_t glue_flow_fold(const void *addr_a, const void *addr_b,
			unsigned addr_len);
unsigned glue_flow_shard(uint16_t fold, uint16_t port_a, uint16_t port_b);

/*
 * Receives at most max (<= GLUE_BURST) frames. Frames that are too short or
 * have broken headers or a wrong checksum are dropped and counted, as are
 * frames that the stack does not use (check.c) and frames of another VLAN.
 * Returns how many frames[] were filled; the caller owns them.
 */
unsigned glue_rx(struct glue_port *port, struct glue_frame **frames,
		 unsigned max);

/*
 * Like glue_rx(), for forwarders: it does not check frames, hand them to other
 * shards or set flags, and drops only frames of other VLANs than the link's.
 */
unsigned glue_rx_raw(struct glue_port *port, struct glue_frame **frames,
		     unsigned max);

/*
 * Allocates a frame of len bytes for sending, in as many segments as necessary.
 * Owned by the caller until glue_tx(). Returns NULL if the pool is empty, or if
 * the port has fallen so far behind that the sender should wait (both are
 * counted).
 */
struct glue_frame *glue_tx_alloc(struct glue_port *port, unsigned len);

/*
 * Returns whether the port has fallen so far behind that glue_tx_alloc()
 * returns NULL. Sends what the port accepts first.
 */
bool glue_tx_busy(struct glue_port *port);

/*
 * The lender of memory that frames refer to; zeroed at first except for done(),
 * which is called each time the last frame that refers to the memory has left.
 * The lender knows where the memory is and how long it must stay.
 */
struct glue_lender {
	void (*done)(struct glue_lender *lender);
	uint64_t frames[3]; /* private */
};

/*
 * Returns whether frames of this port may refer to any memory: the port copies
 * frames with the CPU when it sends them.
 */
bool glue_port_lends(const struct glue_port *port);

/*
 * Appends len bytes to a frame from glue_tx_alloc() without copying them; they
 * must not change before done(). Returns false if the pool is empty (counted).
 */
bool glue_tx_lend(struct glue_port *port, struct glue_frame *frame,
		  const void *data, unsigned len, struct glue_lender *lender);

/*
 * Prepares a received frame of one segment to be sent as len bytes by
 * glue_tx(), while its owner goes on reading it and frees it afterwards. Until
 * then the caller may change its headers alone. Returns false if the frame must
 * be copied instead: the port keeps frames that it has sent, or has fallen
 * behind, or this one is being sent already.
 */
bool glue_tx_again(struct glue_port *port, struct glue_frame *frame,
		   unsigned len);

/*
 * Passes a frame to the port, which owns it at once. Fills in the checksums of
 * the layers that flags, l3_off and l4_off name, and queues the frame; it is
 * sent when a burst is full or at glue_tx_flush(). A frame whose flags name no
 * layer is sent as it is.
 */
void glue_tx(struct glue_port *port, struct glue_frame *frame);

/*
 * Sends the queued frames. Frames that the port refuses stay queued for the
 * next call; frames that find the queue full are dropped and counted. Returns
 * how many were sent.
 */
unsigned glue_tx_flush(struct glue_port *port);

/* Returns whether frames are queued that the port has not taken yet. */
bool glue_tx_pending(const struct glue_port *port);

/* Frees the queued frames without sending them. */
void glue_tx_drop(struct glue_port *port);

/* Frees a frame, all its segments, or one segment after a split. */
void glue_frame_free(struct glue_frame *frame);

/*
 * Makes each segment of a frame a separate frame, to be freed by itself; the
 * `next` links stay for the caller to walk.
 */
void glue_frame_split(struct glue_frame *frame);

/*
 * The size of the shard's pool, the number of free frames in it, and the number
 * that this thread can allocate, which excludes other threads' caches.
 */
unsigned glue_port_frames(const struct glue_port *port);
unsigned glue_port_frames_free(const struct glue_port *port);
unsigned glue_port_frames_usable(const struct glue_port *port);

/* Times that the pool was empty when a frame was to be sent. */
uint64_t glue_port_no_frame(const struct glue_port *port);

/*
 * Returns how many received frames this shard may keep, so that enough are left
 * for the port's rings, its queue and frames being sent. Returns 0 while any
 * pool whose frames this shard may hold runs short, whichever shards hold them:
 * data to keep must then be copied. Called every few hundred frames, on the
 * shard's thread.
 */
unsigned glue_port_frames_spare(struct glue_port *port);

/*
 * Returns which pools are empty, of those whose frames this shard may hold, a
 * bit for each shard's: they have fewer free frames than a burst, both now and
 * when their shard last called glue_port_frames_spare().
 */
uint64_t glue_port_empty_pools(const struct glue_port *port);
/* Returns whether a frame of this port is from one of these pools. */
bool glue_frame_is_of(const struct glue_port *port, struct glue_frame *frame,
		      uint64_t pools);

struct glue_port_stats {
	uint64_t rx_frames, rx_bytes; /* with the tag of the link's VLAN */
	uint64_t rx_bad_frame;	      /* too short, or contradicting lengths */
	uint64_t rx_bad_csum;
	uint64_t rx_partial_csum; /* dropped, or accepted: GLUE_CSUM_TRUST */
	uint64_t rx_refused;	  /* protocols and options not used */
	uint64_t rx_other_vlan; /* another VLAN, or any if the link has none */
	uint64_t rx_missed; /* dropped by the port itself; in shard 0's only */
	uint64_t rx_handed_over;    /* passed to the shards they belong to */
	uint64_t rx_hand_over_full; /* dropped: that shard's queue was full */
	uint64_t rx_taken_over;	    /* received by other shards for this one */
	uint64_t tx_frames, tx_bytes;
	uint64_t tx_no_frame;	 /* pool empty */
	uint64_t tx_busy;	 /* refused for now: port behind */
	uint64_t tx_tso;	 /* frames for the port to cut into segments */
	uint64_t tx_dropped;	 /* queue full: the port takes no more */
	uint64_t tx_handed_over; /* sent by another shard's queue */
	uint64_t tx_carried;	 /* sent for other shards */
};

/* Copies the counters. */
void glue_port_stats(struct glue_port *port, struct glue_port_stats *out);

/* Information about a port's device. */
struct glue_port_info {
	char link[GLUE_PATH_MAX + 16]; /* as in "memif:/tmp/e.sock" */
	char driver[32];	       /* DPDK's, as in net_memif */
	uint8_t mac[6];
	unsigned mtu, queues;
	uint32_t speed_mbps; /* 0: not known */
	bool up, rss, hw_csum, tso;
	bool watched; /* carrier_losses is counted: pci, port, bond */
	unsigned carrier_losses; /* since the start, as seen by the checks */
	char sender[48];	 /* an active-backup bond's member, or "" */
	unsigned sender_changes;
};
struct glue_xstat {
	char name[64];
	uint64_t value;
};

/*
 * Fill in information, and (glue_port_xstats()) the driver's own counters, at
 * most max. The latter returns how many. Any thread may call them while the
 * port is open; they may take long if they query a NIC.
 */
void glue_port_info(struct glue_port *port, struct glue_port_info *out);
unsigned glue_port_xstats(struct glue_port *port, struct glue_xstat *out,
			  unsigned max);

/* Levels of DPDK's log types, and the prefix of coronet's own types. */
#define GLUE_LOG_WARNING 5u
#define GLUE_LOG_DEBUG	 8u
#define GLUE_LOG_CORONET "coronet."

/*
 * Registers a log type with a level, or changes the level of the type of that
 * name. Returns its number or -ENOMEM. One thread at a time may call it.
 */
int glue_log_register(const char *type, unsigned level);
/* The level of a type by its number from glue_log_register(). Any thread. */
unsigned glue_log_level_of(int id);
/*
 * Sets the level, 1 (emergency) to 8 (debug), of all types that a shell pattern
 * matches, as in "pmd.net.*". Returns how many, -EINVAL (the level), -ENOENT
 * (there is no such type). Any thread.
 */
int glue_log_level(const char *pattern, unsigned level);
/* Calls fn for each type with its level. */
void glue_log_types(void (*fn)(const char *type, unsigned level, void *arg),
		    void *arg);

/* Monotonic time in ns from the TSC; cheap, no system call after start. */
int64_t glue_now_ns(void);
