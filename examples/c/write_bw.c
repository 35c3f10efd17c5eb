/*
 * RDMA WRITE bandwidth with the connection manager, in C.
 *
 *   adverb run -- ./write_bw server 127.0.0.1 7471
 *   adverb run -- ./write_bw client 127.0.0.1 7471
 *
 * The server's address and key travel in the private data of the connection. The client keeps a queue of WRITEs full
 * and tells the server with a SEND when it is done.
 */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WRITES = 20000, DEPTH = 128, SIGNAL_EVERY = 16, SIZE = 65536 };

/* Where the client may write. */
struct target {
	uint64_t address;
	uint32_t key;
};

static char buffer[SIZE];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void expect_success(int count, const struct ibv_wc *wc, const char *what)
{
	if (count != 1)
		die(what);
	if (wc->status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(wc->status));
		exit(1);
	}
}

static struct rdma_cm_id *create(int is_server, const char *host, const char *port)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = is_server ? RAI_PASSIVE : 0 };
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = DEPTH + 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_addrinfo *address;
	struct rdma_cm_id *id;

	if (rdma_getaddrinfo(host, port, &hints, &address))
		die("rdma_getaddrinfo");
	if (rdma_create_ep(&id, address, NULL, &attr))
		die("rdma_create_ep");
	rdma_freeaddrinfo(address);
	return id;
}

static void serve(const char *host, const char *port)
{
	struct rdma_cm_id *listener = create(1, host, port), *id;
	struct rdma_conn_param param = { .rnr_retry_count = 7, .retry_count = 7 };
	struct target target;
	struct ibv_mr *mr, *message_mr;
	struct ibv_wc wc;
	char message[1];

	if (rdma_listen(listener, 1))
		die("rdma_listen");
	if (rdma_get_request(listener, &id))
		die("rdma_get_request");
	mr = rdma_reg_write(id, buffer, SIZE);
	message_mr = rdma_reg_msgs(id, message, sizeof(message));
	if (!mr || !message_mr)
		die("register");
	if (rdma_post_recv(id, NULL, message, sizeof(message), message_mr))
		die("rdma_post_recv");
	target.address = (uintptr_t)buffer;
	target.key = mr->rkey;
	param.private_data = &target;
	param.private_data_len = sizeof(target);
	if (rdma_accept(id, &param))
		die("rdma_accept");

	expect_success(rdma_get_recv_comp(id, &wc), &wc, "RECV");
	for (int i = 0; i < SIZE; i++) {
		if (buffer[i] != 'w') {
			fprintf(stderr, "byte %d was not written\n", i);
			exit(1);
		}
	}
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_dereg_mr(message_mr);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

static double write_all(struct rdma_cm_id *id, struct ibv_mr *mr, const struct target *target)
{
	struct timespec start, end;
	int posted = 0, completed = 0;
	struct ibv_wc wc;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (completed < WRITES) {
		while (posted < WRITES && posted - completed < DEPTH) {
			int flags;

			posted++;
			flags = posted % SIGNAL_EVERY == 0 || posted == WRITES ? IBV_SEND_SIGNALED : 0;
			if (rdma_post_write(id, (void *)(uintptr_t)posted, buffer, SIZE, mr, flags, target->address, target->key))
				die("rdma_post_write");
		}
		/* Completions are in order: this one stands for all before it. */
		expect_success(rdma_get_send_comp(id, &wc), &wc, "WRITE");
		completed = (int)wc.wr_id;
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	return (end.tv_sec - start.tv_sec) + (end.tv_nsec - start.tv_nsec) / 1e9;
}

static void write_to(const char *host, const char *port)
{
	struct rdma_cm_id *id = create(0, host, port);
	struct rdma_conn_param param = { .rnr_retry_count = 7, .retry_count = 7 };
	struct target target;
	struct ibv_mr *mr = rdma_reg_msgs(id, buffer, SIZE);
	struct ibv_wc wc;
	double seconds;

	if (!mr)
		die("register");
	if (rdma_connect(id, &param))
		die("rdma_connect");
	memcpy(&target, id->event->param.conn.private_data, sizeof(target));
	memset(buffer, 'w', SIZE);
	seconds = write_all(id, mr, &target);
	printf("%d WRITEs of %d bytes, %.2f Gbit/s\n", WRITES, SIZE, WRITES * (double)SIZE * 8 / seconds / 1e9);
	if (rdma_post_send(id, NULL, buffer, 1, mr, IBV_SEND_SIGNALED))
		die("rdma_post_send");
	expect_success(rdma_get_send_comp(id, &wc), &wc, "SEND");
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: %s server|client ADDRESS PORT\n", argv[0]);
		return 2;
	}
	if (strcmp(argv[1], "server") == 0)
		serve(argv[2], argv[3]);
	else
		write_to(argv[2], argv[3]);
	return 0;
}
