// go-client makes the calls of the client tests with one of the Go clients of S3: `go-client aws` or `go-client minio`.
// It reads a request a line and answers each with a line, as class Program of client.py describes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
)

// request has the parameters of all calls, in the names of client.py.
type request struct {
	Call            string            `json:"call"`
	Bucket          string            `json:"bucket"`
	Key             string            `json:"key"`
	To              string            `json:"to"`
	Body            string            `json:"body"`
	Into            string            `json:"into"`
	ContentType     string            `json:"content_type"`
	ContentEncoding string            `json:"content_encoding"`
	Metadata        map[string]string `json:"metadata"`
	ETag            string            `json:"etag"`
	First           int64             `json:"first"`
	Last            *int64            `json:"last"`
	Length          int64             `json:"length"`
	Tags            map[string]string `json:"tags"`
	Keys            []string          `json:"keys"`
	Prefix          string            `json:"prefix"`
	Delimiter       string            `json:"delimiter"`
	Path            string            `json:"path"`
	Directory       string            `json:"directory"`
	Upload          string            `json:"upload"`
	Number          int32             `json:"number"`
	Parts           json.RawMessage   `json:"parts"`

	// content is the open file that Body names.
	content *os.File
}

type head struct {
	Size            int64             `json:"size"`
	ContentType     string            `json:"content_type"`
	ContentEncoding string            `json:"content_encoding"`
	Metadata        map[string]string `json:"metadata"`
}

type answer struct {
	Result  any    `json:"result,omitempty"`
	Refused string `json:"refused,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// client is one of the clients.
type client struct {
	calls map[string]func(context.Context, request) (any, error)
	// status returns the HTTP status that an error of the client comes from, or 0.
	status func(error) int
}

var kinds = map[int]string{403: "denied", 404: "missing", 412: "precondition"}

func main() {
	clients := map[string]func(context.Context, string) (client, error){"aws": newAWS, "minio": newMinio}
	serve, err := clients[os.Args[1]](context.Background(), os.Getenv("FOREBAY_ENDPOINT"))
	if err != nil {
		log.Fatal(err)
	}
	input, output := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var asked request
		if err := input.Decode(&asked); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		if err := output.Encode(serve.answer(asked)); err != nil {
			log.Fatal(err)
		}
	}
}

func (c client) answer(asked request) answer {
	call, found := c.calls[asked.Call]
	if !found {
		return answer{Refused: "unknown", Detail: asked.Call}
	}
	if asked.Body != "" {
		file, err := os.Open(asked.Body)
		if err != nil {
			return answer{Refused: "unreadable", Detail: err.Error()}
		}
		defer file.Close()
		asked.content = file
	}
	result, err := call(context.Background(), asked)
	if err == nil {
		return answer{Result: result}
	}
	status := c.status(err)
	kind, found := kinds[status]
	if !found {
		kind = strconv.Itoa(status)
	}
	return answer{Refused: kind, Detail: err.Error()}
}

// write puts what a client reads into the file that the request names.
func (r request) write(body io.ReadCloser) error {
	defer body.Close()
	file, err := os.Create(r.Into)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(file, body)
	return err
}

// inOrder returns the parts of an upload, each as its client told it in list_parts, by their numbers.
func inOrder[Part any](told json.RawMessage) ([]Part, error) {
	var parts map[int]Part
	if err := json.Unmarshal(told, &parts); err != nil {
		return nil, err
	}
	var ordered []Part
	for _, number := range slices.Sorted(maps.Keys(parts)) {
		ordered = append(ordered, parts[number])
	}
	return ordered, nil
}

// moduleVersion returns the version of a module that this program was built with.
func moduleVersion(path string) (string, error) {
	built, _ := debug.ReadBuildInfo()
	for _, module := range built.Deps {
		if module.Path == path {
			return module.Version[1:], nil
		}
	}
	return "", fmt.Errorf("built without %s", path)
}
