/* worker.h - the process on a node that runs what the head says (serial mode) */
#ifndef WORKER_H
#define WORKER_H

int worker_main(int argc, char **argv);

#endif
