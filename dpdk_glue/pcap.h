/*
 * Captures packets to a file while the program runs: both directions of every
 * link, as they are on the wire.
 *
 * The polling threads copy the frames that the filter selects into mbufs of a
 * separate pool and put them into a ring; a separate thread writes pcapng. If
 * the pool or the ring is used up, the frame is counted and left out, so that
 * no thread waits. While no capture runs, it costs a burst one branch.
 *
 * Threads: any may start, stop and query; one capture per process at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GLUE_PCAP_SNAP_MAX 9216u /* bytes of a frame */

enum glue_pcap_end {
	GLUE_PCAP_NONE,	   /* none has been started */
	GLUE_PCAP_RUNS,	   /* it runs, or its file is being completed */
	GLUE_PCAP_STOPPED, /* glue_pcap_stop(), or the program's end */
	GLUE_PCAP_FULL,	   /* a limit was reached */
	GLUE_PCAP_FAILED,  /* the file could not be written; error says why */
};

struct glue_pcap_status {
	enum glue_pcap_end end;
	uint64_t packets, bytes; /* in the file; bytes: of the whole file */
	uint64_t dropped;	 /* selected, but not in the file */
	int error;		 /* errno of GLUE_PCAP_FAILED */
	char path[256];
};

struct glue_pcap_conf {
	const char *path;     /* made, or overwritten */
	const char *filter;   /* as tcpdump's; NULL or "": all frames */
	uint64_t max_bytes;   /* of the file, never exceeded */
	uint64_t max_packets; /* 0: as many as max_bytes allows */
	unsigned snap_bytes;  /* of each frame, GLUE_PCAP_SNAP_MAX at most; 0:
				 the longest that the MTU allows */
	/* Called on the writing thread when the file is complete; or NULL. */
	void (*ended)(const struct glue_pcap_status *status);
};

/*
 * Starts a capture; conf is borrowed. It ends at a limit, by glue_pcap_stop()
 * or when the file cannot be written. Opens a file and allocates: not for the
 * path of a packet. Returns 0 or -errno with one clear line in err: -EBUSY (one
 * runs), -EINVAL (the filter, a limit, a path that is no plain file), -ENOMEM,
 * or an error of open(2).
 */
int glue_pcap_start(const struct glue_pcap_conf *conf, char *err,
		    size_t err_len);

/*
 * Returns what glue_pcap_start() would return for these limits and this filter,
 * without a look at the file.
 */
int glue_pcap_check(const struct glue_pcap_conf *conf, char *err,
		    size_t err_len);

/*
 * Makes the capture end, and returns at once; frames captured so far will be in
 * the file. glue_pcap_status() reports when the file is complete. Without a
 * capture it does nothing.
 */
void glue_pcap_stop(void);

/* The state of the running capture, or of the last one. */
void glue_pcap_status(struct glue_pcap_status *out);

/*
 * Ends the capture and waits for the file. Called before EAL stops, and not on
 * a polling thread that others wait for.
 */
void glue_pcap_close(void);
