// Prints what kstatus (https://pkg.go.dev/sigs.k8s.io/cli-utils/pkg/kstatus/status) computes for
// each object of the JSON list on standard input: one status a line.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func main() {
	var objects []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, one := range objects {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(one); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		result, err := status.Compute(object)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		fmt.Println(result.Status)
	}
}
