/*
 * SEND/RECV ping-pong with the connection manager, in C.
 *
 *   adverb run -- ./rc_pingpong server 127.0.0.1 7471
 *   adverb run -- ./rc_pingpong client 127.0.0.1 7471
 *
 * The synchronous interface of librdmacm (rdma_create_ep) makes the QP, its CQs and the connection.
 */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 1000, SIZE = 4096 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* A QP on a connected or listening identifier, as `role` says. */
static struct rdma_cm_id *connect_to_peer(int is_server, const char *host, const char *port, struct rdma_cm_id **listener)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = is_server ? RAI_PASSIVE : 0 };
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct rdma_addrinfo *address;
	struct rdma_cm_id *id;

	if (rdma_getaddrinfo(host, port, &hints, &address))
		die("rdma_getaddrinfo");
	if (rdma_create_ep(&id, address, NULL, &attr))
		die("rdma_create_ep");
	rdma_freeaddrinfo(address);
	*listener = NULL;
	if (is_server) {
		*listener = id;
		if (rdma_listen(*listener, 1))
			die("rdma_listen");
		if (rdma_get_request(*listener, &id))
			die("rdma_get_request");
	}
	return id;
}

static void post_receive(struct rdma_cm_id *id, char *buffer, struct ibv_mr *mr)
{
	if (rdma_post_recv(id, NULL, buffer, SIZE, mr))
		die("rdma_post_recv");
}

static void send_message(struct rdma_cm_id *id, char *buffer, struct ibv_mr *mr, int round)
{
	struct ibv_wc wc;

	memset(buffer, round & 0xff, SIZE);
	if (rdma_post_send(id, NULL, buffer, SIZE, mr, 0))
		die("rdma_post_send");
	if (rdma_get_send_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "SEND %d: %s\n", round, ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static void receive_message(struct rdma_cm_id *id, char *buffer, struct ibv_mr *mr, int round)
{
	struct ibv_wc wc;

	if (rdma_get_recv_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "RECV %d: %s\n", round, ibv_wc_status_str(wc.status));
		exit(1);
	}
	for (int i = 0; i < SIZE; i++) {
		if ((buffer[i] & 0xff) != (round & 0xff)) {
			fprintf(stderr, "message %d differs at byte %d\n", round, i);
			exit(1);
		}
	}
	if (round + 1 < ROUNDS)
		post_receive(id, buffer, mr);
}

int main(int argc, char **argv)
{
	static char out[SIZE], in[SIZE];
	struct rdma_cm_id *id, *listener;
	struct ibv_mr *out_mr, *in_mr;
	struct timespec start, end;
	int is_server;

	if (argc != 4) {
		fprintf(stderr, "usage: %s server|client ADDRESS PORT\n", argv[0]);
		return 2;
	}
	is_server = strcmp(argv[1], "server") == 0;
	id = connect_to_peer(is_server, argv[2], argv[3], &listener);
	out_mr = rdma_reg_msgs(id, out, SIZE);
	in_mr = rdma_reg_msgs(id, in, SIZE);
	if (!out_mr || !in_mr)
		die("rdma_reg_msgs");

	/* The RECV is there before the connection is, so no SEND finds the queue empty. */
	post_receive(id, in, in_mr);
	if (is_server ? rdma_accept(id, NULL) : rdma_connect(id, NULL))
		die("connect");

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (int round = 0; round < ROUNDS; round++) {
		if (is_server) {
			receive_message(id, in, in_mr, round);
			send_message(id, out, out_mr, round);
		} else {
			send_message(id, out, out_mr, round);
			receive_message(id, in, in_mr, round);
		}
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%d round trips of %d bytes, %.2f us each\n", ROUNDS, SIZE,
	       ((end.tv_sec - start.tv_sec) * 1e6 + (end.tv_nsec - start.tv_nsec) / 1e3) / ROUNDS);

	rdma_disconnect(id);
	rdma_dereg_mr(out_mr);
	rdma_dereg_mr(in_mr);
	rdma_destroy_ep(id);
	if (listener)
		rdma_destroy_ep(listener);
	return 0;
}
