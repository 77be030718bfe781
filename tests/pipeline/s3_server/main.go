// An S3 for tests: s3-server ADDRESS DIRECTORY SIDECAR. Each directory in DIRECTORY is a bucket.
// The keys are those of the environment; the end comes with SIGTERM.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if err := serve(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func serve(address, directory, sidecar string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Beside the files, since not every file system has attributes of users.
	metadata, err := meta.NewSideCar(sidecar)
	if err != nil {
		return err
	}
	store, err := posix.New(directory, metadata, posix.PosixOpts{
		SideCarDir:          sidecar,
		CopyObjectThreshold: 5 << 30, // as S3 has it
	})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, store, &embedgw.Config{
		RootUserAccess:    os.Getenv("AWS_ACCESS_KEY_ID"),
		RootUserSecret:    os.Getenv("AWS_SECRET_ACCESS_KEY"),
		Ports:             []string{address},
		KeepAlive:         true,
		MaxConnections:    1000,
		MaxRequests:       1000,
		MultipartMaxParts: 10000,
		Quiet:             true,
		HealthPath:        "/health",
	})
}
