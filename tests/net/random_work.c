/*
 * The work of the stack, in executed basic blocks of its and lwIP's code. Each
 * frame, each call with its bytes, and the time for timers adds to a budget:
 * work for many segments at once, as for one ACK of all, was paid for when they
 * were sent. Code that walks a queue for each received segment soon exceeds the
 * budget.
 */
#include "tests/net/random.h"

#define AT_FIRST     200000
#define MOST	     400000
#define PER_ROUND    200
#define PER_FRAME    4000
#define PER_CALL     1000
#define PER_BYTE     8
#define PER_MS	     120  /* neighbours' timers among others */
#define PER_SHORT_MS 6500 /* while memory is short: a walk of 2,048 buckets */

static int64_t blocks, earned, last_ns;

void __sanitizer_cov_trace_pc(void);

/*
 * The compiler inserts a call at the start of each basic block
 * (-fsanitize-coverage).
 */
void __sanitizer_cov_trace_pc(void)
{
	blocks++;
}

void work_start(void)
{
	earned = AT_FIRST;
	last_ns = fake_now_ns;
}

void work_begin(void)
{
	blocks = 0;
	life.calls = life.call_bytes = 0;
}

void work_end(unsigned frames)
{
	earned += PER_ROUND + PER_FRAME * (int64_t)frames +
		  PER_CALL * (int64_t)life.calls +
		  PER_BYTE * (int64_t)life.call_bytes +
		  (PER_MS + (net_here()->memory_full ? PER_SHORT_MS : 0)) *
			  ((fake_now_ns - last_ns) / MS);
	if (fake_now_ns - last_ns >= MS)
		last_ns = fake_now_ns;
	if (earned > MOST)
		earned = MOST;
	earned -= blocks;
	if (earned < 0)
		violated(NULL,
			 "%lld blocks of code in a round of %u frames, after "
			 "many such",
			 (long long)blocks, frames);
}
