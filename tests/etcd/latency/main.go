// Prints how long one put to etcd takes at the median, in microseconds, by etcd's own client.
// usage: etcd-latency HOST:PORT SECONDS
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: etcd-latency HOST:PORT SECONDS")
	}
	seconds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: os.Args[1:2], DialTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	// As large as what Forebay commits of a small object.
	value := string(make([]byte, 256))
	var took []time.Duration
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
		begin := time.Now()
		if _, err := client.Put(context.Background(), fmt.Sprintf("latency/%d", len(took)%1000), value); err != nil {
			log.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	fmt.Println(took[len(took)/2].Microseconds())
}
