# SPDX-License-Identifier: Apache-2.0
# Perl's threads: queues, semaphores, locks, conditions and shared variables, results and endings.
use strict;
use warnings;
use threads;
use threads::shared;
use Thread::Queue;
use Thread::Semaphore;

my $jobs = Thread::Queue->new;
my $squares = Thread::Queue->new;
my $few = Thread::Semaphore->new(3);
my $sum : shared = 0;

sub work {
    my $ct = 0;
    while (defined(my $job = $jobs->dequeue)) {
        $few->down;
        { lock($sum); $sum += $job; }
        $few->up;
        $squares->enqueue($job * $job);
        $ct++;
    }
    return $ct;
}

my @workers = map { threads->create(\&work) } 1 .. 10;
$jobs->enqueue($_) for 1 .. 2000;
$jobs->end;
my ($ct, $sum_of_squares) = (0, 0);
$ct += $_->join for @workers;
$squares->end;
while (defined(my $square = $squares->dequeue)) { $sum_of_squares += $square }
print "$ct jobs, $sum, $sum_of_squares\n";

my %seen : shared;
my $flag : shared = 0;
my $waiter = threads->create(sub {
    lock($flag);
    cond_wait($flag) until $flag;
    $seen{flag} = $flag;
});
threads->create(sub { lock($flag); $flag = 7; cond_broadcast($flag) })->join;
$waiter->join;
print "flag $seen{flag}\n";
my $late = threads->create(sub { lock($flag); cond_timedwait($flag, time) ? 'woken' : 'late' });
print $late->join, "\n";

my @sleepers = map { my $id = $_; threads->create(sub { select(undef, undef, undef, 0.1); $id }) }
    1 .. 40;
print join(' ', map { $_->join } @sleepers), "\n";
my @list = threads->create({ context => 'list' }, sub { (threads->tid > 0, 'a', 2) })->join;
print "@list\n";

my $ready : shared = 0;
my $endless = threads->create(sub {
    local $SIG{KILL} = sub { threads->exit };
    { lock($ready); $ready = 1; cond_signal($ready); }
    select(undef, undef, undef, 0.01) while 1;
});
{ lock($ready); cond_wait($ready) until $ready; }
$endless->kill('KILL')->join;
my $dies = threads->create(sub { close STDERR; die "of itself\n" });
print defined $dies->join ? 'result' : 'none', ', ', $dies->error;
