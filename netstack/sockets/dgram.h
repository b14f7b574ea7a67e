/*
 * UDP sockets of the stack, under the kernel's descriptor numbers. Calls that
 * return a long return its value, or a negative errno.
 *
 * A socket becomes the stack's when bind(), connect() or the first datagram
 * names an address that the stack serves. A socket that is bound to every
 * address, and over which no datagram has passed yet, becomes the kernel's
 * again when it sends or connects to an address that the kernel serves.
 */
#pragma once

#include <sys/socket.h>

#include <coronet/net_udp.h>

#include "netstack/sockets/sockets_priv.h"

/* The part of a socket that only UDP has; see also struct net_sock. */
struct net_dgram {
	struct net_udp_watch watch; /* first */
	struct net_sock *sock;
	struct net_udp *udp; /* owned; NULL: not open */
	struct net_addr at;  /* where it is opened; port 0: not yet chosen */
	bool bound;	     /* by bind() */
	bool port_given;     /* bind() was given a port */
	bool connected;
	bool to_port_0;	 /* connected to port 0: datagrams are dropped */
	bool has_passed; /* a datagram has passed, in either direction */
	bool lacks_room; /* the last datagram found no room on its link */
	bool pktinfo, recv_ttl, recv_tos, recv_err;	  /* IP_PKTINFO ... */
	bool pktinfo6, recv_hops, recv_tclass, recv_err6; /* IPV6_... */
	uint8_t ttl, hops, tos, tclass; /* ttl, hops: 0: the stack's default */
	unsigned rx_bytes;		/* SO_RCVBUF; 0: the stack's default */
	uint8_t group_ttl, group_hops;	/* IP_MULTICAST_TTL ... */
	bool group_quiet, group_quiet6; /* without IP_MULTICAST_LOOP ... */
	struct net_addr group_local;	/* IP_MULTICAST_IF; or family 0 */
};

/* ---- dgram.c ---- */

/* Returns whether fd is a UDP socket that was neither bound nor connected. */
bool net_dgram_is_fresh(int fd, bool *v6);
/* Makes a new socket a UDP socket. Returns 0 or -ENOMEM. */
int net_dgram_new(struct net_sock *sock, int fd);
/* Opens the socket, if it is not open, at a port that the stack chooses. */
int net_dgram_open(struct net_sock *sock);
/* Returns whether the socket may become the kernel's in order to reach `to`. */
bool net_dgram_may_leave(const struct net_sock *sock,
			 const struct net_addr *to);
long net_dgram_bind(struct net_sock *sock, const struct net_addr *addr);
long net_dgram_connect(struct net_sock *sock, const struct sockaddr *sa,
		       const struct net_addr *to);
long net_dgram_disconnect(struct net_sock *sock);
long net_dgram_shutdown(struct net_sock *sock, int how);
void net_dgram_close(struct net_sock *sock);
long net_dgram_name(struct net_sock *sock, bool peer, struct sockaddr *sa,
		    socklen_t *len);
unsigned net_dgram_events(struct net_sock *sock);

/* ---- dgram_recv.c ---- */

/* Receives one datagram; msg was checked to be readable and writable. */
long net_dgram_recvmsg(struct net_sock *sock, struct msghdr *msg, int flags);
/* Returns how many messages were received. The caller checks n. */
long net_dgram_recvmmsg(struct net_sock *sock, struct mmsghdr *msgs, unsigned n,
			int flags, struct timespec *timeout);
long net_dgram_recv(struct net_sock *sock, const struct iovec *iov, size_t n,
		    int flags);

/* ---- dgram_cmsg.c ---- */

/* Writes the control messages that the program has enabled into msg. */
void net_dgram_put_control(const struct net_sock *sock,
			   const struct net_datagram *datagram,
			   struct msghdr *msg);
/* Writes those about an error that the peer reported, for MSG_ERRQUEUE. */
void net_dgram_put_error(const struct net_sock *sock, int err,
			 const struct net_addr *peer, struct msghdr *msg);

/* Options for one datagram, from the control messages of sendmsg(). */
struct net_dgram_control {
	struct net_addr local; /* family 0: not given */
	int ttl, tos;	       /* below 0: not given */
};
/* Returns 0 or -EINVAL. */
int net_dgram_get_control(const struct net_sock *sock, const struct msghdr *msg,
			  struct net_dgram_control *out);

/* ---- dgram_send.c ---- */

/* Sends one datagram; msg was checked to be readable. */
long net_dgram_sendmsg(struct net_sock *sock, const struct msghdr *msg,
		       int flags);
long net_dgram_send(struct net_sock *sock, const struct iovec *iov, size_t n,
		    int flags);
long net_dgram_sendmmsg(struct net_sock *sock, struct mmsghdr *msgs, unsigned n,
			int flags);

/* ---- dgram_group.c ---- */

/* Sets a multicast option. Returns 0, -ENOPROTOOPT (another kind) or -errno. */
long net_dgram_set_group(struct net_sock *sock, int level, int name,
			 const void *value, socklen_t len);

/* ---- dgram_opts.c ---- */

/* Copies the options that have an effect here from the kernel's socket. */
void net_dgram_opts_load(struct net_sock *sock, int fd);
/* The options of the socket for a family; 0: both. */
struct net_udp_opts net_dgram_udp_opts(const struct net_sock *sock,
				       unsigned family);
long net_dgram_setopt(struct net_sock *sock, int fd, int level, int name,
		      const void *value, socklen_t len);
/* The caller has checked that value and len can be written. */
long net_dgram_getopt(struct net_sock *sock, int fd, int level, int name,
		      void *value, socklen_t *len);
/* For FIONREAD and SIOCOUTQ. */
long net_dgram_ioctl(struct net_sock *sock, unsigned long request, int *value);
