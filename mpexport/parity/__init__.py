"""Parity: does a file compute what its model computes?"""
