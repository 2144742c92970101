"""What a process did when: timelines, for people. No part of training depends on it."""
