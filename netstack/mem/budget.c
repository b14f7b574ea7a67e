/*
 * The memory budget: how much connections and coroutines may use together, so
 * that the whole process stays within --memory.
 *
 * Memory that was taken from the system is charged: chunks of slabs that hold
 * objects, and coro's memory. Coro never returns memory to the system: the part
 * that coroutines no longer use is subtracted from the budget.
 */
#include "netstack/mem/mem.h"

#define FLOOR_BYTES 8192u /* of a window or send buffer */

/* The part of the whole that half-open connections may take: SYNs just come. */
#define HALF_OPEN_SHARE 16u

/* For slabs and coroutines; 0: no bound. */
static NET_SHARD_VAR uint64_t max_bytes;
#define max_bytes NET_SHARD(max_bytes)

/* Memory of libraries, which a caller estimates. */
static NET_SHARD_VAR uint64_t charged_bytes;
#define charged_bytes NET_SHARD(charged_bytes)

void net_budget_charge(int64_t bytes)
{
	charged_bytes += (uint64_t)bytes;
	net_budget_changed();
}

static uint64_t coro_bytes(void)
{
	return net_here()->sched ? coro_sched_memory(net_here()->sched) : 0;
}

uint64_t net_budget_elsewhere(void)
{
	return coro_bytes() + charged_bytes;
}

/* Memory that coroutines have freed is reused by coroutines alone. */
static uint64_t idle_elsewhere(void)
{
	uint64_t live = net_here()->sched
				? coro_sched_memory_live(net_here()->sched)
				: 0;

	return coro_bytes() - LWIP_MIN(live, coro_bytes());
}

uint64_t net_budget_used(void)
{
	return net_mem_bytes() + net_budget_elsewhere() - idle_elsewhere();
}

uint64_t net_budget_whole(void)
{
	return max_bytes - LWIP_MIN(idle_elsewhere(), max_bytes);
}

static uint32_t budget_share(uint64_t most)
{
	uint64_t all = net_budget_whole(), half = all / 2, full = all - all / 8;
	uint64_t now = net_budget_used();

	if (!max_bytes || now <= half)
		return (uint32_t)most;
	if (now >= full)
		return FLOOR_BYTES;
	return (uint32_t)LWIP_MAX(most * (full - now) / (full - half),
				  FLOOR_BYTES);
}

bool net_budget_is_short(void)
{
	return max_bytes &&
	       net_budget_used() > net_budget_whole() - net_budget_whole() / 8;
}

/*
 * Chunks are counted, but one object may hold a chunk: while the objects
 * themselves are few, new ones find room between them.
 */
static bool is_full(void)
{
	return net_budget_is_short() &&
	       net_mem_live_bytes() + net_budget_used() - net_mem_bytes() >
		       net_budget_whole() / 2;
}

/* Coroutines may take three quarters, since they keep what they have taken. */
static void bound_coroutines(void)
{
	uint64_t slabs = LWIP_MIN(net_mem_bytes() + charged_bytes, max_bytes);
	uint64_t most = max_bytes - max_bytes / 4;

	if (!net_here()->sched)
		return;
	coro_sched_limit_memory(net_here()->sched,
				max_bytes ? LWIP_MIN(max_bytes - slabs, most)
					  : SIZE_MAX);
}

/*
 * Two segments; and two units of the scale, since one that is partly used
 * would be announced as 0 (RFC 7323 2.3).
 */
static uint32_t least_window(void)
{
	uint32_t least = LWIP_MAX(2 * net_here()->mtu,
				  UINT32_C(2) << net_here()->rcv_scale);

	return LWIP_MIN(least, TCP_WND);
}

void net_budget_changed(void)
{
	net_here()->snd_max = budget_share(TCP_SND_BUF);
	net_here()->rcv_limit = LWIP_MAX(budget_share(TCP_WND), least_window());
	net_here()->half_open_bytes =
		max_bytes ? net_budget_whole() / HALF_OPEN_SHARE : UINT64_MAX;
	net_here()->memory_full = is_full();
	bound_coroutines();
}

void net_budget_set(uint64_t bytes)
{
	max_bytes = bytes;
	net_mem_set_max(bytes ? bytes : UINT64_MAX);
	net_budget_changed();
}
