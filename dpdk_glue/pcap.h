/*
 * Packets into a file, as they cross the wire's edge: both directions of every
 * link, while the program runs.
 *
 * The polling threads copy what the filter takes into mbufs of its own pool
 * and put them into a ring; a thread of its own writes pcapng. What finds the
 * pool or the ring used up is counted and not in the file: nobody waits. While
 * no capture runs, a burst pays for one branch.
 *
 * Threads: any may start, stop and ask; one capture a process at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GLUE_PCAP_SNAP_MAX 9216u /* bytes of a frame */

enum glue_pcap_end {
	GLUE_PCAP_NONE,	   /* none has been started */
	GLUE_PCAP_RUNS,	   /* or its file is being finished */
	GLUE_PCAP_STOPPED, /* glue_pcap_stop(), or the program's end */
	GLUE_PCAP_FULL,	   /* a limit was reached */
	GLUE_PCAP_FAILED,  /* the file could not be written; error says why */
};

struct glue_pcap_status {
	enum glue_pcap_end end;
	uint64_t packets, bytes; /* in the file; all of it, headers too */
	uint64_t dropped;	 /* taken by the filter, and not in the file */
	int error;		 /* errno of GLUE_PCAP_FAILED */
	char path[256];
};

struct glue_pcap_conf {
	const char *path;     /* made, or overwritten */
	const char *filter;   /* as tcpdump's; NULL or "": all frames */
	uint64_t max_bytes;   /* of the file, never exceeded */
	uint64_t max_packets; /* 0: as many as that allows */
	unsigned snap_bytes; /* of each frame, GLUE_PCAP_SNAP_MAX at most; 0: of
				the longest that the MTU allows */
	/* On its own thread, when the file is complete; or NULL. */
	void (*ended)(const struct glue_pcap_status *status);
};

/*
 * Starts a capture; conf is borrowed. It ends at a limit, by glue_pcap_stop()
 * or when the file cannot be written. Opens a file and allocates: not for the
 * path of a packet. Returns 0 or -errno with one clear line in err: -EBUSY (one
 * runs), -EINVAL (the filter, a limit, a path that is no plain file), -ENOMEM,
 * or what open(2) said.
 */
int glue_pcap_start(const struct glue_pcap_conf *conf, char *err,
		    size_t err_len);

/*
 * Asks it to end; what has been seen by now will be in the file. Returns at
 * once: glue_pcap_status() tells when the file is complete. Without a capture
 * it does nothing.
 */
void glue_pcap_stop(void);

/* How the present or the last one stands. */
void glue_pcap_status(struct glue_pcap_status *out);

/* Ends it and waits for the file; before EAL stops, not on a polling thread
   that others wait for. */
void glue_pcap_close(void);
