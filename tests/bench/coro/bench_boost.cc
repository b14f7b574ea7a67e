/*
 * bench_boost.cc - create, run and destroy as a user of Boost.Context
 * does it: a fiber on a stack from Boost's own pool.
 */
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>

#include <chrono>

extern "C" double create_boost_fiber(long n);

double create_boost_fiber(long n)
{
	namespace ctx = boost::context;
	static ctx::pooled_fixedsize_stack pool(65536);
	auto start = std::chrono::steady_clock::now();

	for (long i = 0; i < n; i++) {
		ctx::fiber f(std::allocator_arg, pool, [](ctx::fiber &&back) {
			return std::move(back);
		});
		f = std::move(f).resume();
	}
	std::chrono::duration<double, std::nano> took =
		std::chrono::steady_clock::now() - start;
	return took.count() / n;
}
