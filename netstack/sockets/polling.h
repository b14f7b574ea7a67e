/* poll(), select() and epoll sets, for the hooks and for sockets. */
#pragma once

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "netstack/sockets/sockets_priv.h"

/*
 * poll() in a coroutine, or with a socket of the stack. Waits at most `ns`
 * nanoseconds; below 0: no limit. Returns a count or a negative errno.
 */
long net_poll_fds(struct pollfd *fds, size_t n, int64_t ns);
bool net_poll_has_own(struct pollfd *fds, size_t n);
bool net_fd_is_in(int fd, const fd_set *set);
long net_select_fds(int n, fd_set *in, fd_set *out, fd_set *except, int64_t ns);

int net_epoll_new(int fd); /* for the kernel's new set fd; 0 or -ENOMEM */
long net_epoll_control(int epfd, int op, int fd, struct epoll_event *event);
long net_epoll_await(struct net_epoll *set, int epfd,
		     struct epoll_event *events, int max, int64_t ns);
/*
 * Removes a descriptor from every set: it must have been closed, since the
 * kernel has just returned its number again.
 */
void net_epoll_forget(int fd);
/* Returns whether fd is a set that has a ready socket of the stack. */
bool net_epoll_is_ready(int fd);
/*
 * Notifies node when a set may become ready. Returns false if fd is not a set
 * with sockets of the stack.
 */
bool net_epoll_add_node(int fd, struct net_sock_node *node);
/* Called when a descriptor of the kernel has become a socket of the stack. */
void net_epoll_adopt(int fd, struct net_sock *sock);
/* Called when a socket of the stack is about to become the kernel's. */
void net_epoll_release(int fd, struct net_sock *sock);
void net_epoll_wake(struct net_epoll *set); /* when the stack stops */
/* Remove and add a descriptor that refers to the set. */
void net_epoll_put(struct net_epoll *set);
void net_epoll_hold(struct net_epoll *set);
/* Called when a socket or the whole set is about to be freed. */
void net_epoll_node_gone(struct net_sock_node *node);
bool net_epoll_is_node(const struct net_sock_node *node);
struct net_epoll *net_epoll_next(const struct net_epoll *set);
