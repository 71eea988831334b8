// SPDX-License-Identifier: Apache-2.0

// The peers in Go: goroutines over channels, and the coroutines behind iter.Pull, which hand over
// without the scheduler. Both are resumed by next() and end by stop(), so that they share the
// workloads. A goroutine's stack grows by itself: the sizes of stacks are ignored. Called as
// `main goroutine|pull WORKLOAD ARGS`. Relies on the standard library alone.
package main

import (
	"fmt"
	"iter"
	"os"
	"runtime"
	"strconv"
	"time"
)

// ---- The two kinds of coroutine ----------------------------------------------------------------

// coroutine has the meaning of what iter.Pull returns: next() resumes it and returns what it
// yields, or false once it has ended; stop() makes the yield that it is suspended in return false,
// and returns when it has ended.
type coroutine struct {
	next func() (uint64, bool)
	stop func()
}

// start makes a coroutine of either kind, which has not run yet.
type start func(body iter.Seq[uint64]) coroutine

func pull(body iter.Seq[uint64]) coroutine {
	next, stop := iter.Pull(body)
	return coroutine{next, stop}
}

// goroutine hands over by two channels without buffers: one to resume, one for what is yielded.
func goroutine(body iter.Seq[uint64]) coroutine {
	resumed, yielded := make(chan struct{}), make(chan uint64)
	go func() {
		defer close(yielded)
		if _, ok := <-resumed; !ok {
			return
		}
		body(func(value uint64) bool {
			yielded <- value
			_, ok := <-resumed
			return ok
		})
	}()
	next := func() (uint64, bool) {
		resumed <- struct{}{}
		value, ok := <-yielded
		return value, ok
	}
	stop := func() {
		close(resumed)
		<-yielded
	}
	return coroutine{next, stop}
}

// ---- Bodies ------------------------------------------------------------------------------------

// flat yields 1, 2, 3 and so on up to ct.
func flat(ct uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for yields := uint64(1); yields <= ct && yield(yields); yields++ {
		}
	}
}

//go:noinline
func call4(yield func(uint64) bool, value uint64) bool { return !yield(value) }

//go:noinline
func call3(yield func(uint64) bool, value uint64) bool { return !call4(yield, value) }

//go:noinline
func call2(yield func(uint64) bool, value uint64) bool { return !call3(yield, value) }

//go:noinline
func call1(yield func(uint64) bool, value uint64) bool { return !call2(yield, value) }

// deep yields the same from four calls deep.
func deep(ct uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for yields := uint64(1); yields <= ct && call1(yield, yields); yields++ {
		}
	}
}

// live yields what eight integers and eight doubles, alive across each yield, come to at that
// time: 36 each at first, and 8 more each time.
func live(ct uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		var i1, i2, i3, i4, i5, i6, i7, i8 uint64 = 1, 2, 3, 4, 5, 6, 7, 8
		var d1, d2, d3, d4, d5, d6, d7, d8 float64 = 1, 2, 3, 4, 5, 6, 7, 8
		for range ct {
			sum := i1 + i2 + i3 + i4 + i5 + i6 + i7 + i8
			if !yield(sum + uint64(d1+d2+d3+d4+d5+d6+d7+d8)) {
				return
			}
			i1, i2, i3, i4, i5, i6, i7, i8 = i1+1, i2+1, i3+1, i4+1, i5+1, i6+1, i7+1, i8+1
			d1, d2, d3, d4, d5, d6, d7, d8 = d1+1, d2+1, d3+1, d4+1, d5+1, d6+1, d7+1, d8+1
		}
	}
}

// ---- Workloads ---------------------------------------------------------------------------------

// Each workload is done once before it is measured, so that allocators and caches are warm.
const (
	warmUpCt    = 1000
	tableCycles = 20 // of create, end, drop, kill, for their means
)

func check(holds bool, words string) {
	if !holds {
		fmt.Fprintln(os.Stderr, "peer:", words)
		os.Exit(1)
	}
}

func nsEach(ct uint64, work func()) float64 {
	begin := time.Now()
	work()
	return float64(time.Since(begin).Nanoseconds()) / float64(ct)
}

// resumeRounds resumes all so many times, and checks each value against flat's.
func resumeRounds(all []coroutine, from, rounds uint64) {
	for round := from; round < from+rounds; round++ {
		for i := range all {
			value, ok := all[i].next()
			check(ok && value == round, "a resume was lost")
		}
	}
}

func endAll(all []coroutine) {
	for i := range all {
		_, ok := all[i].next()
		check(!ok, "a coroutine did not end")
	}
}

func stopAll(all []coroutine) {
	for i := range all {
		all[i].stop()
	}
}

// The first resume, which starts it, and the last, which ends it, are not measured; disturb is
// called while it is suspended. It yields `first` at first, and `step` more each time.
func runSwitch(of start, body func(uint64) iter.Seq[uint64], ct, first, step uint64,
	disturb func()) {
	co := of(body(ct + 1))
	value, ok := co.next()
	check(ok && value == first, "the first value is wrong")
	disturb()
	ns := nsEach(ct, func() {
		for range ct {
			last := value
			value, ok = co.next()
			check(ok && value == last+step, "a resume was lost")
		}
	})
	endAll([]coroutine{co})
	fmt.Printf("ns %.3f\n", ns)
}

func createAll(of start, ct, yields uint64) ([]coroutine, float64) {
	all := make([]coroutine, 0, ct)
	ns := nsEach(ct, func() {
		for range ct {
			all = append(all, of(flat(yields)))
		}
	})
	return all, ns
}

// life creates, resumes to the end and drops, one after the other.
func life(of start, ct uint64) {
	lives := func(ct uint64) float64 {
		return nsEach(ct, func() {
			for range ct {
				endAll([]coroutine{of(flat(0))})
			}
		})
	}
	lives(warmUpCt)
	fmt.Printf("ns %.3f\n", lives(ct))
}

var metrics = [...]string{"create_ns", "switch_ns", "last_ns", "destroy_ns", "kill_ns"}

const switchMetric = 1

// To destroy one that has ended is to drop it: the collection that frees it is what it costs.
func cycle(of start, ct, switches uint64) [len(metrics)]float64 {
	runtime.GC()
	all, create := createAll(of, ct, switches)
	switched := nsEach(ct*switches, func() { resumeRounds(all, 1, switches) })
	last := nsEach(ct, func() { endAll(all) })
	destroy := nsEach(ct, func() {
		all = nil
		runtime.GC()
	})
	all, _ = createAll(of, ct, 2)
	resumeRounds(all, 1, 1)
	kill := nsEach(ct, func() { stopAll(all) })
	return [...]float64{create, switched, last, destroy, kill}
}

func table(of start, ct, switches uint64) {
	cycle(of, ct, 1)
	var means [len(metrics)]float64
	for range tableCycles {
		for i, ns := range cycle(of, ct, 1) {
			means[i] += ns / tableCycles
		}
	}
	means[switchMetric] = cycle(of, ct, switches)[switchMetric]
	for i, metric := range metrics {
		fmt.Printf("%s %.3f\n", metric, means[i])
	}
}

// The round that starts them is not measured.
func many(of start, ct, rounds uint64) {
	all, _ := createAll(of, ct, 2)
	resumeRounds(all, 1, 1)
	stopAll(all)
	all, create := createAll(of, ct, rounds+1)
	resumeRounds(all, 1, 1)
	switched := nsEach(ct*rounds, func() { resumeRounds(all, 2, rounds) })
	endAll(all)
	fmt.Printf("create_ns %.3f\nswitch_ns %.3f\n", create, switched)
}

// ---- Skynet ------------------------------------------------------------------------------------

const children = 10

// nested makes ten children, resumes one after the other, and yields their sum.
func nested(of start, first, ct uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		if ct == 1 {
			yield(first)
			return
		}
		var all [children]coroutine
		for i := range all {
			all[i] = of(nested(of, first+uint64(i)*(ct/children), ct/children))
		}
		var sum uint64
		for i := range all {
			value, _ := all[i].next()
			all[i].stop()
			sum += value
		}
		yield(sum)
	}
}

// scheduled starts ten children that report to one channel, and reports their sum.
func scheduled(report chan<- uint64, first, ct uint64) {
	if ct == 1 {
		report <- first
		return
	}
	found := make(chan uint64)
	for i := range uint64(children) {
		go scheduled(found, first+i*(ct/children), ct/children)
	}
	var sum uint64
	for range children {
		sum += <-found
	}
	report <- sum
}

func runSkynet(of start, kind string, leaves uint64) {
	rest := leaves
	for rest%children == 0 {
		rest /= children
	}
	check(rest == 1, "the leaves of skynet are a power of ten")
	var sum uint64
	begin := time.Now()
	if kind == "nested" {
		root := of(nested(of, 0, leaves))
		sum, _ = root.next()
		root.stop()
	} else {
		found := make(chan uint64)
		go scheduled(found, 0, leaves)
		sum = <-found
	}
	ms := float64(time.Since(begin).Nanoseconds()) / 1e6
	check(sum == leaves*(leaves-1)/2, "skynet's sum is wrong")
	fmt.Printf("ms %.3f\n", ms)
}

// ---- Which workload ----------------------------------------------------------------------------

func numbers(words []string) []uint64 {
	var values []uint64
	for _, word := range words {
		value, err := strconv.ParseUint(word, 10, 64)
		check(err == nil && value > 0, "the arguments of a workload are numbers, of 1 at least")
		values = append(values, value)
	}
	return values
}

func skynet(of start, kind string, words []string) {
	if kind != "nested" && (kind != "scheduler" || os.Args[1] == "pull") {
		os.Exit(77)
	}
	runSkynet(of, kind, append(numbers(words), 1000000)[0])
}

var quotient, one, three float64 = 0, 1, 3

func main() {
	check(len(os.Args) > 3, "usage: main goroutine|pull WORKLOAD ARGS")
	of := map[string]start{"goroutine": goroutine, "pull": pull}[os.Args[1]]
	check(of != nil, "the first argument is goroutine or pull")
	workload, words := os.Args[2], os.Args[3:]
	switch workload {
	case "switch":
		runSwitch(of, flat, numbers(words)[0], 1, 1, func() {})
	case "switch_inexact":
		runSwitch(of, flat, numbers(words)[0], 1, 1, func() { quotient = one / three })
	case "switch_deep":
		runSwitch(of, deep, numbers(words)[0], 1, 1, func() {})
	case "switch_live":
		runSwitch(of, live, numbers(words)[0], 72, 16, func() {})
	case "life":
		life(of, numbers(words)[0])
	case "table":
		args := numbers(words)
		table(of, args[0], args[1])
	case "many":
		args := numbers(words)
		many(of, args[0], args[2])
	case "skynet":
		skynet(of, words[0], words[1:])
	default:
		os.Exit(77)
	}
}
