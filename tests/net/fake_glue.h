/*
 * dpdk_glue without DPDK, to test netstack/ frame by frame: a port of two
 * arrays in memory, and a fake clock. Each thread has its own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dpdk_glue/glue.h"

#define FAKE_MAX_FRAMES 4096

/* The stack's MAC and the tester's. */
extern const uint8_t fake_mac[6];
extern const uint8_t fake_peer_mac[6];

/* Called each time the stack flushes its port, unless NULL. */
extern _Thread_local void (*fake_on_flush)(void);

/* The clock, in ns. */
extern _Thread_local int64_t fake_now_ns;

/* Advance of the clock at each reading, in ns. */
extern _Thread_local int64_t fake_clock_step_ns;

/* Frames allocated and not freed. */
extern _Thread_local unsigned fake_frames_out;

/* Number of frames that glue_tx_alloc() still returns; -1: unlimited. */
extern _Thread_local int fake_tx_budget;
/* The only port that the budget is for; NULL: all. */
extern _Thread_local const struct glue_port *fake_budget_port;

/* Number of received frames that the stack may hold; -1: half of all. */
extern _Thread_local int fake_frames_spare;

/* True if a pool of the port is reported to be empty. */
extern _Thread_local bool fake_frames_exhausted;
/* The only port whose pool that concerns; NULL: all. */
extern _Thread_local const struct glue_port *fake_exhausted_port;

/* What glue_port_stats() reports. */
extern _Thread_local struct glue_port_stats fake_port_stats;

/* True if the port has lost its carrier. */
extern _Thread_local bool fake_no_carrier;

/* Frames are received in segments of so many bytes; 0: in one piece. */
extern _Thread_local unsigned fake_segment_bytes;

/* Frames to be sent have segments of so many bytes; 0: one piece. */
extern _Thread_local unsigned fake_tx_segment_bytes;

/* True if frames may refer to lent memory. */
extern _Thread_local bool fake_lends;

/* True if a received frame may be sent while the stack has it. */
extern _Thread_local bool fake_resends;

/* Number of segments of the last frame that fake_sent() returned. */
extern _Thread_local unsigned fake_sent_pieces;

/*
 * Queues a frame for reception, with the flags of glue_rx(); 0: as glue_check()
 * sets them, which may drop the frame.
 */
void fake_receive(const void *data, unsigned len, uint16_t flags,
		  uint16_t l4_off);

/*
 * Queues a frame for reception after the checks and checksum verification of
 * glue_rx(). Returns false if it was dropped.
 */
bool fake_receive_wire(const void *data, unsigned len);

/*
 * Takes the oldest frame the stack sent; returns its length, 0 if there is
 * none.
 */
unsigned fake_sent(uint8_t *data, unsigned room);

/* The shard that every flow belongs to, as this thread sees it; 0 at first. */
extern _Thread_local unsigned fake_flow_shard;
/* The shard whose ports cannot be opened; 0: none. */
extern _Atomic unsigned fake_broken_shard;

/* Discards queued frames. */
void fake_reset(void);
