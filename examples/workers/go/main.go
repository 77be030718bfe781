// A plain worker in go-redis: reads, works, acknowledges, and finishes what it held when it ended.
// What it must and should do is in docs/reference/protocol.md. handle stands for your work.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	stream, group = os.Getenv("PELOPS_STREAM"), os.Getenv("PELOPS_GROUP")
	consumer      = os.Getenv("PELOPS_CONSUMER")
	always        = context.Background()
)

func handle(id string, fields map[string]any) error {
	text, _ := fields["work_ms"].(string)
	ms, err := strconv.Atoi(cmp.Or(text, "0"))
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(ms) * time.Millisecond)
	fmt.Println("done", id)
	return nil
}

// work reads once, works what came, and says where to read next: the own history first, then new ones.
func work(server *redis.Client, position string, ending context.Context) (string, error) {
	answer, err := server.XReadGroup(always, &redis.XReadGroupArgs{Group: group, Consumer: consumer,
		Streams: []string{stream, position}, Count: 100, Block: 2 * time.Second}).Result()
	if err != nil && err != redis.Nil {
		return "", err
	}
	last := ">"
	for _, found := range answer {
		for _, entry := range found.Messages {
			if position != ">" {
				last = entry.ID
			}
			if entry.Values != nil { // else its body is gone
				if err := handle(entry.ID, entry.Values); err != nil {
					log.Println("failed", entry.ID, err) // it stays pending, and is tried again after the idle limit
					continue
				}
			}
			if err := server.XAck(always, stream, group, entry.ID).Err(); err != nil {
				return "", err
			}
			if ending.Err() != nil {
				return last, nil
			}
		}
	}
	return last, nil
}

func main() {
	options, err := redis.ParseURL(os.Getenv("PELOPS_REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	options.Username = cmp.Or(options.Username, os.Getenv("PELOPS_REDIS_USERNAME"))
	options.Password = cmp.Or(options.Password, os.Getenv("PELOPS_REDIS_PASSWORD"))
	options.MaxRetries = -1 // a read that the client repeats by itself hides that the first one's answer was lost
	server := redis.NewClient(options)
	ending, stop := signal.NotifyContext(always, syscall.SIGTERM)
	defer stop()
	for position := "0"; ending.Err() == nil; {
		if position, err = work(server, position, ending); err != nil {
			log.Println("waiting:", err)
			time.Sleep(time.Second)
			position = "0"
		}
	}
}
